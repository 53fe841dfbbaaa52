#!/bin/sh
# Builds the fuzz targets with plain stable Rust and a C++ compiler, replays the committed inputs, then fuzzes each target
# for so many seconds. Fails on any finding and prints its bytes.
#
#   fuzz/smoke.sh [SECONDS [TARGET...]]
set -eu

seconds=${1:-60}
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- decode json ops crash

cd "$(dirname "$0")"
host=$(rustc -vV | sed -n 's/^host: //p')
flags="--cfg fuzzing -Cpasses=sancov-module -Ccodegen-units=1"
for arg in -sanitizer-coverage-level=4 -sanitizer-coverage-inline-8bit-counters \
    -sanitizer-coverage-pc-table -sanitizer-coverage-trace-compares; do
    flags="$flags -Cllvm-args=$arg"
done
# The explicit target keeps the flags away from build scripts and derive macros.
RUSTFLAGS="$flags" cargo build --release --locked --target "$host" --target-dir target/smoke

out=target/smoke/out
for target in "$@"; do
    binary=target/smoke/$host/release/$target
    grown=$out/$target/corpus
    found=$out/$target/found
    rm -rf "$out/$target"
    mkdir -p "$grown" "$found" "regressions/$target"
    echo "== $target"
    run="$binary -max_len=4096 -rss_limit_mb=2048 -timeout=20 -artifact_prefix=$found/"
    if ! $run -runs=0 "corpus/$target" "regressions/$target" >"$out/$target/log" 2>&1 ||
        ! $run -max_total_time="$seconds" -print_final_stats=1 \
            "$grown" "corpus/$target" "regressions/$target" >>"$out/$target/log" 2>&1; then
        tail -n 60 "$out/$target/log"
        for input in "$found"/*; do
            echo "-- $input"
            od -An -tx1 "$input"
        done
        echo "a finding in $target: fix it, then commit the input under fuzz/regressions/$target"
        exit 1
    fi
    grep -E '^stat::|INITED' "$out/$target/log" | tail -n 6
done
