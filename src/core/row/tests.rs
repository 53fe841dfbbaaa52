use super::*;
use proptest::prelude::*;

fn names() -> impl Strategy<Value = (Option<Tenant>, String, String)> {
    let tenant = prop::option::of("[^\\pC]{1,20}".prop_map(|name| Tenant::parse(&name).unwrap()));
    (tenant, "[^\\pC]{1,40}", prop_oneof!["[^\\pC]{0,60}", "[^\\pC]{200,300}"])
}

fn written(value: &impl Serialize) -> Vec<u8> {
    bincode::serde::encode_to_vec(value, bincode::config::standard()).unwrap()
}

#[test]
fn a_key_is_laid_out_as_documented() {
    let shop = Tenant::new("shop");
    for (key, bytes) in [
        (RowKey::resource(Some(&shop), "order", "17"), &b"tshop\0order\x0017"[..]),
        (RowKey::resource(None, "stock", "pen"), b"sstock\0pen"),
        (RowKey::unique(Some(&shop), "cart", ""), b"ushop\0cart\0"),
        (RowKey::unique(None, "cart", "c-9"), b"vcart\0c-9"),
    ] {
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
