\echo Use "ALTER EXTENSION outbox_ext UPDATE TO '0.2.0'" to load this file. \quit

-- Like the install script, this one may run as a superuser for an owner who is none: what it makes is handed to
-- the owner, before any REVOKE.

-- The indexes are built while writers of the table wait.
ALTER TABLE outbox_event ADD COLUMN claimed_in_order boolean;
ALTER TABLE outbox_event SET (fillfactor = 45);

-- The unfinished events of an aggregate in the order of ordered claims. aggregate_id comes first, since uuids
-- compare faster than texts and tell nearly all aggregates apart.
CREATE INDEX outbox_event_aggregate_idx ON outbox_event (aggregate_id, aggregate_type, created_at, id)
    WHERE completed_at IS NULL AND dead_at IS NULL;

-- At most one event of an aggregate is in flight by an ordered claim, whatever the sessions can see of each
-- other. Claims without an order leave claimed_in_order null, and stay HOT. The tenant is in it since row-level
-- security may hide another tenant's event, which must not hold back a claim, nor be told of by one.
CREATE UNIQUE INDEX outbox_event_in_flight_idx ON outbox_event (aggregate_id DESC, aggregate_type, tenant_id) NULLS NOT DISTINCT
    WHERE claimed_in_order AND completed_at IS NULL AND dead_at IS NULL;

-- Completed events, the first to end first: what retention goes along.
CREATE INDEX outbox_event_completed_idx ON outbox_event (completed_at, id)
    WHERE completed_at IS NOT NULL;

-- Dead events, the first to die first. Type and tenant come last, so that a replay of one type or tenant keeps
-- that order, and passes the others by without a look at their rows. Nothing that has not died has an entry.
CREATE INDEX outbox_event_dead_idx ON outbox_event (dead_at, id, event_type, tenant_id)
    WHERE dead_at IS NOT NULL;

CREATE FUNCTION outbox_aggregate_id(
    aggregate_type text,
    key text
) RETURNS uuid
IMMUTABLE PARALLEL SAFE
LANGUAGE c
AS 'MODULE_PATHNAME', 'outbox_aggregate_id_wrapper';

CREATE FUNCTION outbox_capture() RETURNS trigger
LANGUAGE c AS 'MODULE_PATHNAME', 'outbox_capture_wrapper';

CREATE FUNCTION outbox_complete_batch(
    event_ids uuid[],
    worker_id text,
    attempts integer[] DEFAULT NULL
) RETURNS SETOF uuid
VOLATILE PARALLEL UNSAFE
LANGUAGE c
AS 'MODULE_PATHNAME', 'outbox_complete_batch_wrapper';

CREATE FUNCTION outbox_enqueue_batch(events jsonb) RETURNS TABLE (ordinal integer, id uuid, deduplicated boolean)
LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 1000
AS 'MODULE_PATHNAME', 'outbox_enqueue_batch_wrapper';

CREATE FUNCTION outbox_extend_batch(
    event_ids uuid[],
    worker_id text,
    attempts integer[] DEFAULT NULL
) RETURNS SETOF uuid
VOLATILE PARALLEL UNSAFE
LANGUAGE c
AS 'MODULE_PATHNAME', 'outbox_extend_batch_wrapper';

CREATE FUNCTION outbox_fail_batch(
    event_ids uuid[],
    worker_id text,
    error_code text,
    max_attempts integer DEFAULT NULL,
    next_attempt timestamptz DEFAULT NULL,
    attempts integer[] DEFAULT NULL
) RETURNS TABLE (
    id uuid,
    status text
)
VOLATILE PARALLEL UNSAFE
LANGUAGE c
AS 'MODULE_PATHNAME', 'outbox_fail_batch_wrapper';

CREATE FUNCTION outbox_grant(grantee regrole, duty text) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'outbox_grant_wrapper';

CREATE FUNCTION outbox_purge(
    older_than interval,
    max_events integer DEFAULT 10000,
    statuses text[] DEFAULT '{completed}'
) RETURNS bigint
VOLATILE PARALLEL UNSAFE
LANGUAGE c
AS 'MODULE_PATHNAME', 'outbox_purge_wrapper';

CREATE FUNCTION outbox_release_batch(
    event_ids uuid[],
    worker_id text,
    available_at timestamptz DEFAULT NULL,
    attempts integer[] DEFAULT NULL
) RETURNS SETOF uuid
VOLATILE PARALLEL UNSAFE
LANGUAGE c
AS 'MODULE_PATHNAME', 'outbox_release_batch_wrapper';

CREATE FUNCTION outbox_replay(
    event_ids uuid[] DEFAULT NULL,
    event_type text DEFAULT NULL,
    tenant_id uuid DEFAULT NULL,
    max_events integer DEFAULT 1000
) RETURNS bigint
VOLATILE PARALLEL UNSAFE
LANGUAGE c
AS 'MODULE_PATHNAME', 'outbox_replay_wrapper';

-- What waits, a row an event type. One statement, so one snapshot; one reading of the clock.
--
-- It reads unfinished and dead events only, through their partial indexes. A planner without statistics, or with
-- those of a time when nothing was finished, would take most events for unfinished or dead and read the whole
-- table. So each index is also asked for all that lies between two bounds, which the planner cannot see and takes
-- for one event in 200, whatever its statistics.
CREATE VIEW outbox_stats WITH (security_invoker = true) AS
WITH bounds AS MATERIALIZED (
    SELECT clock_timestamp() AS now,
           timestamptz '-infinity' AS first, timestamptz 'infinity' AS last,
           uuid '00000000-0000-0000-0000-000000000000' AS first_id,
           uuid 'ffffffff-ffff-ffff-ffff-ffffffffffff' AS last_id
), event AS (
    SELECT event_type::text, status::text, available_at, locked_at
      FROM ONLY outbox_event
     WHERE completed_at IS NULL AND dead_at IS NULL
       AND available_at BETWEEN (SELECT first FROM bounds) AND (SELECT last FROM bounds)
       AND id BETWEEN (SELECT first_id FROM bounds) AND (SELECT last_id FROM bounds)
    UNION ALL
    SELECT event_type::text, 'dead', NULL, NULL
      FROM ONLY outbox_event
     WHERE dead_at IS NOT NULL
       AND dead_at BETWEEN (SELECT first FROM bounds) AND (SELECT last FROM bounds)
       AND id BETWEEN (SELECT first_id FROM bounds) AND (SELECT last_id FROM bounds)
)
SELECT event_type,
       count(*) FILTER (WHERE status = 'pending' AND available_at <= now) AS ready,
       count(*) FILTER (WHERE status = 'pending' AND available_at > now) AS scheduled,
       count(*) FILTER (WHERE status = 'processing') AS processing,
       count(*) FILTER (WHERE status = 'dead') AS dead,
       max(now - available_at) FILTER (WHERE status = 'pending' AND available_at <= now) AS oldest_ready_age,
       max(now - locked_at) FILTER (WHERE status = 'processing') AS oldest_lease_age
  FROM event, bounds
 GROUP BY event_type;

ALTER FUNCTION outbox_aggregate_id OWNER TO @extowner@;
ALTER FUNCTION outbox_capture OWNER TO @extowner@;
ALTER FUNCTION outbox_enqueue_batch OWNER TO @extowner@;
ALTER FUNCTION outbox_complete_batch OWNER TO @extowner@;
ALTER FUNCTION outbox_fail_batch OWNER TO @extowner@;
ALTER FUNCTION outbox_extend_batch OWNER TO @extowner@;
ALTER FUNCTION outbox_release_batch OWNER TO @extowner@;
ALTER FUNCTION outbox_replay OWNER TO @extowner@;
ALTER FUNCTION outbox_purge OWNER TO @extowner@;
ALTER VIEW outbox_stats OWNER TO @extowner@;
ALTER FUNCTION outbox_grant OWNER TO @extowner@;

REVOKE ALL ON FUNCTION outbox_capture FROM PUBLIC;
REVOKE ALL ON FUNCTION outbox_enqueue_batch FROM PUBLIC;
REVOKE ALL ON FUNCTION outbox_complete_batch FROM PUBLIC;
REVOKE ALL ON FUNCTION outbox_fail_batch FROM PUBLIC;
REVOKE ALL ON FUNCTION outbox_extend_batch FROM PUBLIC;
REVOKE ALL ON FUNCTION outbox_release_batch FROM PUBLIC;
REVOKE ALL ON FUNCTION outbox_replay FROM PUBLIC;
REVOKE ALL ON FUNCTION outbox_purge FROM PUBLIC;
REVOKE ALL ON FUNCTION outbox_grant FROM PUBLIC;

COMMENT ON COLUMN outbox_event.claimed_in_order IS 'Whether its last claim was an ordered one; NULL while it is pending.';
COMMENT ON INDEX outbox_event_aggregate_idx IS 'Unfinished events by aggregate, in the order of ordered claims.';
COMMENT ON INDEX outbox_event_in_flight_idx IS 'At most one event of a tenant''s aggregate is in flight by an ordered claim.';
COMMENT ON INDEX outbox_event_completed_idx IS 'Completed events in the order in which they were completed.';
COMMENT ON INDEX outbox_event_dead_idx IS 'Dead events in the order in which they died.';
COMMENT ON FUNCTION outbox_aggregate_id IS 'Id of an aggregate whose key is no uuid: a name-based UUID (version 5) of aggregate_type (1 to 255 bytes) and key (a text that is not empty), the same in every release. Errors: 22004 an argument is NULL; 22023 an argument out of range; 22021 a text that is none in the database''s encoding.';
COMMENT ON FUNCTION outbox_capture IS 'Trigger for tables of yours: AFTER INSERT OR UPDATE OR DELETE FOR EACH ROW EXECUTE FUNCTION outbox_capture(''order'', ''id'') enqueues the events order.created, order.updated and order.deleted of the aggregate that column id names (a uuid, or any other type by way of outbox_aggregate_id), with payload {"operation", "before", "after"}. A third argument tenant=column names the tenant''s column, a uuid. Errors: 39P01 not an AFTER ROW trigger; 22023 invalid arguments; 42703 no such column; 22004 the id is null; 42804 a column of the wrong type; and those of outbox_enqueue.';
COMMENT ON FUNCTION outbox_event_guard IS 'Trigger of outbox_event: fills in payload_hash, makes the columns fit the status, notifies outbox.notify_channel when the event becomes claimable. Errors: 22023 a value that no event can have; 54000 the payload is larger than outbox.max_payload_bytes allows.';
COMMENT ON FUNCTION outbox_enqueue IS 'Adds one pending event in the caller''s transaction and returns its id; for a deduplication_key that was used before with an equal payload on the same aggregate, the earlier event''s id. Required: aggregate_type, aggregate_id, event_type, payload. available_at NULL means now. Errors: 22004 a required argument is NULL; 22023 an argument out of range; 54000 the payload is larger than outbox.max_payload_bytes allows; 23505 the key was used with another payload or aggregate; 42501 the key is held by an event you may not see; 40001 the key was lost to a concurrent transaction.';
COMMENT ON FUNCTION outbox_claim_batch IS 'Leases up to batch_size events to a worker: pending and due, or with a lease older than lock_timeout; in the order (available_at, created_at, id), never one event to two workers. Call it in FROM. An event whose lease expired after max_attempts counted attempts (NULL: outbox.max_attempts) goes to dead instead. With only_event_types and only_tenant, events of these types and this tenant alone. With ordered, only the first unfinished event of each aggregate by (created_at, id), while no other of the aggregate is in flight by an ordered claim. Errors: 22004 a required argument is NULL; 22023 an argument out of range; 40001 the claim lost to a concurrent transaction.';
COMMENT ON FUNCTION outbox_complete IS 'Marks a leased event as completed, or deletes it with outbox.delete_completed. With attempt (the attempt_count that the claim returned) it must be that very attempt. Errors: 22004 a required argument is NULL; P0002 no such event; 55000 the lease is not held, and DETAIL says what is found.';
COMMENT ON FUNCTION outbox_enqueue_batch IS 'Adds many pending events in the caller''s transaction, all or none. events: a JSON array of objects whose keys are the parameters of outbox_enqueue; JSON null is a payload, and NULL under every other key. Returns for each element, counted from 1, the id and whether it is an earlier event''s. Errors: as outbox_enqueue, and DETAIL names the element; 22023 events is no array, an element is no object, has an unknown key or a value of the wrong kind.';
COMMENT ON FUNCTION outbox_complete_batch IS 'Marks leased events as completed in one statement (or deletes them with outbox.delete_completed) and returns the ids of those that it completed; where the lease is not held, the event is left alone. attempts runs parallel to event_ids and fences each event to that attempt. Errors: 22004 an argument or an element of event_ids is NULL; 22023 an argument out of range, or attempts of another length.';
COMMENT ON FUNCTION outbox_fail_batch IS 'Ends the attempts of leased events, each as outbox_fail does, and returns id and new status of those that it failed; where the lease is not held, the event is left alone. Errors: as outbox_complete_batch.';
COMMENT ON FUNCTION outbox_extend_batch IS 'Renews leases from now, the heartbeat of long work, and returns the ids of the events whose lease is held. Errors: as outbox_complete_batch.';
COMMENT ON FUNCTION outbox_release_batch IS 'Gives leased events back, pending again at available_at (NULL: now) and with the attempt forgiven, and returns their ids; where the lease is not held, the event is left alone. Errors: as outbox_complete_batch.';
COMMENT ON FUNCTION outbox_replay IS 'Brings dead events back to pending, due now and with a fresh budget of attempts, those that died first first, at most max_events; returns how many. Only those among event_ids, of event_type and of tenant_id that are given (NULL: any). Their history stays. Errors: 22004 max_events or an element of event_ids is NULL; 22023 an argument out of range.';
COMMENT ON FUNCTION outbox_purge IS 'Deletes events that ended longer than older_than ago, at most max_events, those that ended first first, and returns how many. statuses: completed, dead or both, in the order in which they go. What has not ended is never deleted, and what is locked is passed over. With an event ends the deduplication of its key. Errors: 22004 an argument or an element of statuses is NULL; 22023 an argument out of range.';
COMMENT ON VIEW outbox_stats IS 'What waits, a row an event type that has unfinished or dead events; reads those only, however many are completed.';
COMMENT ON COLUMN outbox_stats.event_type IS 'The event type.';
COMMENT ON COLUMN outbox_stats.ready IS 'Pending events that are due.';
COMMENT ON COLUMN outbox_stats.scheduled IS 'Pending events that are due later: scheduled, or waiting for a retry.';
COMMENT ON COLUMN outbox_stats.processing IS 'Events that are leased to a worker, expired leases included.';
COMMENT ON COLUMN outbox_stats.dead IS 'Events that were given up.';
COMMENT ON COLUMN outbox_stats.oldest_ready_age IS 'For how long the ready event that has been due for longest has been due; NULL when none is ready.';
COMMENT ON COLUMN outbox_stats.oldest_lease_age IS 'How long ago the oldest lease was taken; NULL when none is held.';
COMMENT ON FUNCTION outbox_grant IS 'Grants a role what it needs for a duty, and no more: producer (enqueue; reads no payload), worker (claim and settle; changes no payload) or operator (replay, purge, look at everything). Errors: 22004 an argument is NULL; 22023 an unknown duty; 42704 no such role; 42501 the caller may not grant it.';
