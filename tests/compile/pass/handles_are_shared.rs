use onecho::*;

fn shared<T: Send + Sync + 'static>() {}
fn copied<T: Clone>() {}
fn compared<T: Eq + std::hash::Hash + Ord>() {}
fn shown<T: std::fmt::Debug>() {}

fn main() {
    shared::<Store>();
    shared::<Options>();
    shared::<Request>();
    shared::<Reply>();
    shared::<Outcome>();
    shared::<Error>();
    shared::<Kind<std::cell::Cell<u8>>>();
    copied::<Store>();
    copied::<Options>();
    copied::<Request>();
    copied::<Policy>();
    copied::<Kind<std::cell::Cell<u8>>>();
    copied::<Resource<String>>();
    compared::<Tenant>();
    compared::<Operation>();
    compared::<Key>();
    compared::<Scope>();
    compared::<ResourceRef>();
    compared::<Timestamp>();
    shown::<Store>();
    shown::<Effects<'_, '_>>();
    shown::<Scan<Resource<String>>>();
    shown::<Advice>();
    shown::<Stats>();
    shown::<VerifyReport>();
}
