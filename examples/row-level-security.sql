-- Row-level security by tenant: every role sees, claims, settles and enqueues the events of one tenant, the one
-- that its session or transaction names in the setting app.tenant_id:
--
--     BEGIN;
--     SET LOCAL app.tenant_id = '7e000000-0000-4000-8000-000000000001';
--     ...
--
-- Run it with psql, as the owner of the extension, after CREATE EXTENSION; and again after every restore of a
-- dump, before anybody else connects. A dump holds the events and the grants of an extension's table,
-- but not its policies, the switch that turns them on, or an index of yours. Running it again does no harm.
--
--     psql -v schema=app -v all_tenants=mailer -d shop -f row-level-security.sql
--
--     schema        where the extension is; public if left out
--     all_tenants   a role that serves all tenants, and events of no tenant; none if left out

\set ON_ERROR_STOP on
SET client_min_messages = warning;
\if :{?schema}
\else
    \set schema public
\endif

BEGIN;

-- FORCE, so that the owner of the table is held to it too. Superusers and roles with BYPASSRLS are not.
ALTER TABLE :"schema".outbox_event ENABLE ROW LEVEL SECURITY;
ALTER TABLE :"schema".outbox_event FORCE ROW LEVEL SECURITY;

-- Without the setting there is no tenant, and so no event. The empty text is what SET LOCAL leaves behind in a
-- session. In a sub-select, so that it is read once a statement and not once a row.
DROP POLICY IF EXISTS outbox_own_tenant ON :"schema".outbox_event;
CREATE POLICY outbox_own_tenant ON :"schema".outbox_event
    USING (tenant_id = (SELECT nullif(current_setting('app.tenant_id', true), '')::uuid));
COMMENT ON POLICY outbox_own_tenant ON :"schema".outbox_event IS 'Events of the tenant in app.tenant_id.';

DROP POLICY IF EXISTS outbox_all_tenants ON :"schema".outbox_event;
\if :{?all_tenants}
    CREATE POLICY outbox_all_tenants ON :"schema".outbox_event TO :"all_tenants" USING (true);
    COMMENT ON POLICY outbox_all_tenants ON :"schema".outbox_event IS 'Events of all tenants, and of none.';
\endif

-- So that a tenant's claim does not walk the events of all others. It makes an enqueue a little dearer: leave
-- it out where only roles that serve all tenants claim.
CREATE INDEX IF NOT EXISTS outbox_event_tenant_idx
    ON :"schema".outbox_event (tenant_id, available_at, created_at, id)
    WHERE completed_at IS NULL AND dead_at IS NULL;

COMMIT;
