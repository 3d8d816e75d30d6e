//! The server is killed and started again: what was committed is there, what was not is not.

use support::cluster::Cluster;
use support::outbox::ids;
use support::{Event, Outbox, Sql};

#[test]
fn a_killed_server_comes_back_with_what_was_committed_and_nothing_else() {
    let cluster = Cluster::start_new();
    let (mut session, mut open) = (cluster.session(), cluster.session());
    session.enqueue_many(1_000);
    let claimed = ids(&session.claim("w", 30));
    session.complete(claimed[0], "w");
    assert_eq!(session.fail(claimed[1], "w", 1), "dead");
    let keyed = session.enqueue(&Event::keyed("kept"));
    // Transactions that will never end: their events and their leases must not survive.
    open.run("BEGIN");
    open.enqueue(&Event::keyed("lost"));
    let open_claim = ids(&open.claim("open", 20));
    assert_eq!(open_claim.len(), 20);
    let mut prepared = cluster.session();
    prepared.run("BEGIN");
    prepared.enqueue(&Event::keyed("prepared"));
    prepared.run("PREPARE TRANSACTION 'prepared'");
    // One more commit, so that the open transaction's records are in the log that is replayed.
    session.enqueue(&Event::keyed("last"));

    cluster.kill();
    cluster.start();

    let mut session = cluster.session();
    let statuses = |session: &mut support::Client| {
        ["pending", "processing", "completed", "dead"].map(|status| session.count(status))
    };
    assert_eq!(statuses(&mut session), [972, 28, 1, 1]);
    assert_eq!(session.enqueue(&Event::keyed("kept")), keyed);
    for id in &open_claim {
        assert_eq!((session.status(*id), session.attempts(*id)), ("pending".into(), 0));
    }
    session.complete(claimed[2], "w");
    session.run("COMMIT PREPARED 'prepared'");
    assert_eq!(statuses(&mut session), [973, 27, 2, 1]);
    assert_eq!(session.claim("w", 2_000).len(), 973);
}

#[test]
fn events_are_kept_in_a_table_that_is_logged() {
    let database = support::Database::with_extension();
    let persistence: i8 = database
        .session()
        .value("SELECT relpersistence FROM pg_class WHERE oid = 'outbox_event'::regclass", &[]);
    assert_eq!(persistence as u8, b'p');
}
