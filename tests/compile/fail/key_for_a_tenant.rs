//! refused: E0308

use onecho::{Key, Kind, Store};

fn look(store: &Store, key: &Key) {
    let _ = store.get(key, &Kind::<String>::json("note"), "id");
}

fn main() {}
