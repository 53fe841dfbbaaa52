use super::*;
use proptest::prelude::*;

/// The rule, character by character.
fn is_refused(text: &str) -> bool {
    text.is_empty() || text.chars().any(is_unprintable)
}

fn check(text: &str) {
    assert_eq!(checked("name", text, usize::MAX).is_err(), is_refused(text), "{text:?}");
    assert!(!is_printable_ascii(text) || text.chars().all(|c| matches!(c, ' '..='~')), "{text:?}");
    if text.len() <= NAME_BYTES_MAX {
        assert_eq!(is_name(text), !is_refused(text), "{text:?}");
    }
}

#[test]
fn the_quick_look_at_a_name_refuses_what_the_slow_one_does() {
    for c in '\0'..=char::MAX {
        check(c.encode_utf8(&mut [0; 4]));
    }
    for c in ('\0'..='\u{200}').chain('\u{2000}'..='\u{2040}') {
        for before in 0..40 {
            check(&format!("{}{c}{}", "a".repeat(before), "~ ".repeat(before % 19)));
        }
    }
}

#[test]
fn a_key_has_255_characters_of_any_length() {
    for (c, last) in [('a', 'b'), ('é', 'b'), ('a', 'é'), ('\u{10FFFF}', 'b')] {
        let most = format!("{}{last}", c.to_string().repeat(KEY_CHARS_MAX - 1));
        assert_eq!(Key::parse(&most).unwrap().as_str(), most);
        let error = Key::parse(&format!("{most}b")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::LimitExceeded);
    }
}

#[test]
fn hexadecimal_text_has_two_digits_for_each_byte() {
    for byte in 0..=u8::MAX {
        assert_eq!(hex(&[0x0F, byte]), format!("0f{byte:02x}"));
    }
}

proptest! {
    #[test]
    fn any_text_is_refused_by_both_or_by_none(text in any::<String>(), ascii in "[ -~]{0,80}") {
        check(&text);
        check(&ascii);
        check(&(ascii + &text));
    }
}
