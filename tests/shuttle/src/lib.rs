//! The queue, the places and the turns of the engine under schedulers that choose every step of every
//! thread. `docs/testing.md` says what is checked and how to replay a schedule.
//!
//! `build.rs` copies the store's own files. Each variant is a whole set of them: `sound` as they are, each
//! other one with one mistake.

mod clock;
mod core;
pub mod run;
mod sync;

/// One module for each variant, with those files that its model is about.
macro_rules! variants {
    ($files:ident: $($name:ident),* $(,)?) => {$(
        #[allow(dead_code, unused_imports, unused_variables, reason = "no model uses all of a file")]
        pub mod $name {
            use crate::{clock, sync};

            $files!($name);
        }
    )*};
}

macro_rules! file {
    ($name:ident/$file:literal) => {
        include!(concat!(env!("OUT_DIR"), "/", stringify!($name), "/", $file));
    };
}

macro_rules! queue {
    ($name:ident) => {
        pub mod queue {
            file!($name / "queue.rs");

            // Inside, to see how many wait.
            pub mod model {
                include!("queue_model.rs");
            }
        }
        mod line {
            file!($name / "line.rs");
        }
    };
}

macro_rules! waiting {
    ($name:ident) => {
        mod places {
            file!($name / "places.rs");
        }
        mod turns {
            file!($name / "turns.rs");
        }
        pub mod waiting {
            include!("waiting_model.rs");
        }
    };
}

macro_rules! all {
    ($name:ident) => {
        queue!($name);
        waiting!($name);
    };
}

variants! { all: sound }

variants! {
    queue:
    forgets_to_hand_over,
    keeps_the_lead_for_nobody,
    rings_before_it_tells,
    looks_before_it_listens,
    two_may_lead,
    lets_nobody_in,
    lets_one_in_instead_of_all,
    leaves_a_hole,
    the_small_pass_the_large,
    gives_up_what_is_queued,
    room_without_bounds,
    losers_stand_behind,
    losers_pass_each_other,
    abandons_its_batch,
    unwinds_with_the_lead,
    forgets_the_shared_bell,
}

variants! {
    waiting:
    wakes_one_of_a_place,
    ends_a_place_in_silence,
    forgets_that_a_place_ended,
    rings_a_place_before_its_end,
    frees_the_place_of_another,
    a_place_for_two,
    a_bench_for_each,
    takes_an_overdue_place_in_silence,
    calls_nobody_to_its_turn,
    waits_for_two_turns,
}
