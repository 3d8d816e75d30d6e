//! The order in which the SQL files of sql/ and the functions come in the installation script.

use pgrx::extension_sql_file;

extension_sql_file!("../sql/types.sql", name = "types", bootstrap);
extension_sql_file!(
    "../sql/table.sql",
    name = "table",
    requires = [event_id::outbox_event_id, payload_hash::outbox_payload_hash, guard::outbox_event_guard]
);
extension_sql_file!("../sql/stats.sql", name = "stats", requires = ["table"]);
extension_sql_file!(
    "../sql/comments.sql",
    name = "comments",
    requires = [
        "table",
        "stats",
        aggregate_id::outbox_aggregate_id,
        capture::outbox_capture,
        enqueue::outbox_enqueue,
        enqueue_batch::outbox_enqueue_batch,
        claim::outbox_claim_batch,
        complete::outbox_complete,
        complete::outbox_complete_batch,
        dead_letter::outbox_replay,
        extend::outbox_extend_batch,
        fail::outbox_fail,
        fail::outbox_fail_batch,
        grant::outbox_grant,
        release::outbox_release_batch,
        retention::outbox_purge
    ]
);
extension_sql_file!("../sql/privileges.sql", name = "privileges", finalize);
