use super::*;
use proptest::prelude::*;

fn names() -> impl Strategy<Value = (Option<Tenant>, String, String)> {
    let tenant = prop::option::of("[^\\pC]{1,20}".prop_map(|name| Tenant::parse(&name).unwrap()));
    (tenant, "[^\\pC]{1,40}", prop_oneof!["[^\\pC]{0,60}", "[^\\pC]{200,300}"])
}

fn written(value: &impl Serialize) -> Vec<u8> {
    bincode::serde::encode_to_vec(value, bincode::config::standard()).unwrap()
}

const ID: MessageId = MessageId { seq: 257, ordinal: 10 };

#[test]
fn a_key_of_a_message_tells_what_it_was_built_from() {
    let due = RowKey::due("out", Timestamp(255), ID);
    assert_eq!(
        (due.destination(), due.due_at(), due.message_id()),
        (Some("out"), Some(Timestamp(255)), Some(ID))
    );
    for key in [RowKey::message(ID), RowKey::letter(ID), RowKey::flying(ID)] {
        assert_eq!((key.message_id(), key.due_at(), key.destination()), (Some(ID), None, None));
        assert!(key.is_own());
    }
    assert_eq!(RowKey::queue("shop", "out", "k").queue_names(), Some(("shop", "out", "k")));
    assert_eq!(RowKey::known("shop", "out", "k").queue_names(), None);
    // The last key before it, over the ends of both numbers.
    let before =
        |ordinal| RowKey::due("out", Timestamp(255), MessageId { ordinal, ..ID }).before_due().unwrap();
    assert_eq!(before(10).message_id(), Some(MessageId { ordinal: 9, ..ID }));
    assert_eq!(before(0).message_id(), Some(MessageId { seq: 256, ordinal: u32::MAX }));
    assert!(before(10) < due && before(0) < before(1));
}

#[test]
fn a_key_is_laid_out_as_documented() {
    let shop = Tenant::new("shop");
    for (key, bytes) in [
        (RowKey::resource(Some(&shop), "order", "17"), &b"tshop\0order\x0017"[..]),
        (RowKey::resource(None, "stock", "pen"), b"sstock\0pen"),
        (RowKey::unique(Some(&shop), "cart", ""), b"ushop\0cart\0"),
        (RowKey::unique(None, "cart", "c-9"), b"vcart\0c-9"),
        (RowKey::message(ID), b"m00000000000001010000000a"),
        (RowKey::letter(ID), b"p00000000000001010000000a"),
        (RowKey::flying(ID), b"a00000000000001010000000a"),
        (RowKey::due("out", Timestamp(255), ID), b"dout\x0000000000000000ff00000000000001010000000a"),
        (RowKey::queue("shop", "out", "k"), b"qshop\0out\0k"),
        (RowKey::known("shop", "out", "k"), b"kshop\0out\0k"),
        (RowKey::stream("shop", "forge/mirror", "s"), b"wshop\0forge/mirror\0s"),
    ] {
        assert_eq!(RowKey::parse(bytes), Some(key.clone()));
        assert_eq!((key.as_bytes(), &key.to_bytes()[..]), (bytes, bytes));
    }
    for bytes in [&b""[..], b"t", b"tshop", b"tshop\0order", b"xstock\0pen", b"s\xFF\0pen", b"sstock\0\xC3"] {
        assert_eq!(RowKey::parse(bytes), None, "{bytes:?}");
        assert!(
            bincode::serde::decode_from_slice::<RowKey, _>(
                &written(&Bytes::copy_from_slice(bytes)),
                bincode::config::standard()
            )
            .is_err()
        );
    }
}

#[test]
fn what_stands_before_a_prefix_is_text() {
    for (prefix, before) in [(&b"sstock\0"[..], &b"sstock\0"[..]), (b"s\xC3", b"s"), (b"", b"")] {
        assert_eq!(RowKey::before(prefix).as_bytes(), before);
    }
}

proptest! {
    #[test]
    fn a_key_tells_what_it_was_built_from((tenant, name, last) in names()) {
        for key in [
            RowKey::resource(tenant.as_ref(), &name, &last),
            RowKey::unique(tenant.as_ref(), &name, &last),
        ] {
            let named = key.reference();
            prop_assert_eq!(&named, &ResourceRef::new(&name, &last, tenant.is_none()));
            prop_assert_eq!(key.is_shared(), tenant.is_none());
            prop_assert_eq!(key.ending(last.len()), last.as_str());
            prop_assert_eq!(RowKey::parse(key.as_bytes()), Some(key.clone()));
            prop_assert_eq!(&key.sibling(&last), &key);
            prop_assert!(key.sibling(&(last.clone() + "!")) > key);
            // The one and the other way to write it are the same bytes.
            let bytes = written(&key);
            prop_assert_eq!(&bytes, &written(&key.to_bytes()));
            let (read, _) = bincode::serde::decode_from_slice(&bytes, bincode::config::standard()).unwrap();
            prop_assert_eq!(&key, &read);
        }
        let unique = RowKey::unique(tenant.as_ref(), &name, &last);
        prop_assert!(unique.is_unique() && !RowKey::resource(tenant.as_ref(), &name, &last).is_unique());
    }
}
