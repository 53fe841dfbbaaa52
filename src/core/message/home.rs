//! What a message is called in a store that did not make it. Owns the mapping of numbers; must not know how
//! messages move from one store to another.
//!
//! A number is given by the store that made the message, so two stores may have given the same one. Away from
//! home the upper bits say where that is: bit 63 is set, 20 bits are the first ones of the home's store id,
//! and 43 bits are the number. The same message has the same name in all stores but its own, and its own name
//! again when it comes home.

use super::MessageId;

const AWAY: u64 = 1 << 63;
const SEQ_BITS: u32 = 43;
const SEQ_MASK: u64 = (1 << SEQ_BITS) - 1;

impl MessageId {
    /// The name that a message of the store `there` has in the store `here`; none where its number is larger
    /// than any store's of some million entries a second.
    pub fn moved(self, there: &[u8; 16], here: &[u8; 16]) -> Option<Self> {
        let name = if self.seq & AWAY == 0 {
            if self.seq > SEQ_MASK {
                return None;
            }
            home(there) | self.seq
        } else {
            self.seq
        };
        let is_home = name & !SEQ_MASK == home(here);
        Some(Self { seq: if is_home { name & SEQ_MASK } else { name }, ..self })
    }
}

/// The upper bits of the names of a store's messages where they are away from home.
fn home(store: &[u8; 16]) -> u64 {
    let mut head = [0; 8];
    head.copy_from_slice(&store[..8]);
    AWAY | (u64::from_be_bytes(head) >> 1 & !SEQ_MASK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_one_name_abroad_and_its_own_at_home() {
        let (a, b, c) = ([1; 16], [2; 16], [0xFF; 16]);
        let own = MessageId { seq: 17, ordinal: 3 };
        let at_b = own.moved(&a, &b).unwrap();
        assert!(at_b.seq > 1 << 62 && at_b.ordinal == 3);
        let at_c = at_b.moved(&b, &c).unwrap();
        assert_eq!(at_c, at_b);
        assert_eq!(at_c.moved(&c, &a), Some(own));
        assert_ne!(own.moved(&c, &b), Some(at_b), "another store's message of the same number");
        assert_eq!(MessageId { seq: 1 << 43, ordinal: 0 }.moved(&a, &b), None);
    }
}
