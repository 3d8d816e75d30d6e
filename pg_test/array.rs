//! Arrays as they are handed to statements.

#[pgrx::pg_schema]
mod tests {
    use crate::array;
    use crate::pg_test::support::*;
    use crate::plans::Value;
    use pgrx::pg_sys::{self, INT4OID, JSONBOID, TEXTOID, TIMESTAMPTZOID, UUIDOID};
    use pgrx::prelude::*;
    use pgrx::{IntoDatum, JsonB, Uuid};

    /// What PostgreSQL's own output says of the array.
    fn written(element_type: pg_sys::Oid, values: impl IntoIterator<Item = Value>) -> String {
        let built = array::of(element_type, values);
        // SAFETY: array_out reads an array, and returns a C string.
        unsafe {
            let (mut output, mut is_varlena) = (pg_sys::InvalidOid, false);
            pg_sys::getTypeOutputInfo(pg_sys::get_array_type(element_type), &mut output, &mut is_varlena);
            std::ffi::CStr::from_ptr(pg_sys::OidOutputFunctionCall(output, built))
                .to_str()
                .unwrap()
                .to_owned()
        }
    }

    #[pg_test]
    fn an_array_holds_its_values_and_nulls_in_their_order() {
        let uuid = Uuid::from_bytes([7; 16]);
        let of_uuids = [Some(crate::plans::uuid(&uuid)), None];
        assert_eq!(written(UUIDOID, of_uuids), "{07070707-0707-0707-0707-070707070707,NULL}");
        assert_eq!(written(INT4OID, [3, -1, 2].map(IntoDatum::into_datum)), "{3,-1,2}");
        let texts = ["é", "", "NULL", "a,\"b"].map(IntoDatum::into_datum);
        assert_eq!(written(TEXTOID, texts), r#"{é,"","NULL","a,\"b"}"#);
        let jsons = [one::<JsonB>(r#"'{"a": [1]}'::jsonb"#).into_datum(), None];
        assert_eq!(written(JSONBOID, jsons), r#"{"{\"a\": [1]}",NULL}"#);
        let moment = crate::plans::moment(crate::instant::Instant::from_micros(1));
        assert_eq!(
            written(TIMESTAMPTZOID, [None, Some(moment)]),
            r#"{NULL,"2000-01-01 00:00:00.000001+00"}"#
        );
    }

    #[pg_test]
    fn an_array_may_be_empty_or_all_null_or_long() {
        assert_eq!(written(TEXTOID, []), "{}");
        assert_eq!(written(UUIDOID, [None, None]), "{NULL,NULL}");
        let numbers = (0..100_000).map(|number: i32| number.into_datum());
        assert_eq!(written(INT4OID, numbers).matches(',').count(), 99_999);
    }
}
