//! What names need from the operating system. Everything else about them is the core's.

use crate::core::name::{Key, hex};
use crate::core::text::Text;
use crate::engine;

impl Key {
    /// A random key, for clients: store it before the first send, and keep it over all retries.
    ///
    /// # Panics
    ///
    /// When the operating system gives no random bytes.
    #[must_use]
    pub fn random() -> Self {
        let bytes: [u8; 16] = engine::random().unwrap_or_else(|fault| panic!("{fault}"));
        Self(Text::from(hex(&bytes).as_str()))
    }
}
