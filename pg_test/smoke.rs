#[pgrx::pg_schema]
mod tests {
    use pgrx::prelude::*;
    #[pg_test]
    fn smoke() {
        let n = Spi::get_one::<i64>("SELECT count(*) FROM outbox_event").unwrap();
        assert_eq!(n, Some(0));
    }
}
