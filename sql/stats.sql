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
