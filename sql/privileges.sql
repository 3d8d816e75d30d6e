-- Installed by a database owner who is no superuser (trusted = true), this script still runs as a
-- superuser: what it made is handed to the owner, before any REVOKE, which acts on an owner's grants.
ALTER DOMAIN outbox_status OWNER TO @extowner@;
ALTER DOMAIN outbox_name OWNER TO @extowner@;
ALTER DOMAIN outbox_deduplication_key OWNER TO @extowner@;
ALTER TABLE outbox_event OWNER TO @extowner@;
ALTER FUNCTION outbox_event_id OWNER TO @extowner@;
ALTER FUNCTION outbox_payload_hash OWNER TO @extowner@;
ALTER FUNCTION outbox_aggregate_id OWNER TO @extowner@;
ALTER FUNCTION outbox_capture OWNER TO @extowner@;
ALTER FUNCTION outbox_event_guard OWNER TO @extowner@;
ALTER FUNCTION outbox_enqueue OWNER TO @extowner@;
ALTER FUNCTION outbox_enqueue_batch OWNER TO @extowner@;
ALTER FUNCTION outbox_claim_batch OWNER TO @extowner@;
ALTER FUNCTION outbox_complete OWNER TO @extowner@;
ALTER FUNCTION outbox_fail OWNER TO @extowner@;
ALTER FUNCTION outbox_complete_batch OWNER TO @extowner@;
ALTER FUNCTION outbox_fail_batch OWNER TO @extowner@;
ALTER FUNCTION outbox_extend_batch OWNER TO @extowner@;
ALTER FUNCTION outbox_release_batch OWNER TO @extowner@;
ALTER FUNCTION outbox_replay OWNER TO @extowner@;
ALTER FUNCTION outbox_purge OWNER TO @extowner@;
ALTER VIEW outbox_stats OWNER TO @extowner@;
ALTER FUNCTION outbox_grant OWNER TO @extowner@;

-- PUBLIC calls nothing that writes. The functions run with their caller's rights (SECURITY INVOKER), so a
-- caller needs rights on the table too.
REVOKE ALL ON FUNCTION outbox_capture FROM PUBLIC;
REVOKE ALL ON FUNCTION outbox_event_guard FROM PUBLIC;
REVOKE ALL ON FUNCTION outbox_enqueue FROM PUBLIC;
REVOKE ALL ON FUNCTION outbox_enqueue_batch FROM PUBLIC;
REVOKE ALL ON FUNCTION outbox_claim_batch FROM PUBLIC;
REVOKE ALL ON FUNCTION outbox_complete FROM PUBLIC;
REVOKE ALL ON FUNCTION outbox_fail FROM PUBLIC;
REVOKE ALL ON FUNCTION outbox_complete_batch FROM PUBLIC;
REVOKE ALL ON FUNCTION outbox_fail_batch FROM PUBLIC;
REVOKE ALL ON FUNCTION outbox_extend_batch FROM PUBLIC;
REVOKE ALL ON FUNCTION outbox_release_batch FROM PUBLIC;
REVOKE ALL ON FUNCTION outbox_replay FROM PUBLIC;
REVOKE ALL ON FUNCTION outbox_purge FROM PUBLIC;
REVOKE ALL ON FUNCTION outbox_grant FROM PUBLIC;
