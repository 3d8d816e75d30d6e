//! Waiting for an event rather than for a time.

use crate::database::Database;
use crate::sql::Sql;
use postgres::Client;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Generous, since it is only used up when a test fails.
const DEADLINE: Duration = Duration::from_secs(60);

/// Waits until something is the case.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < DEADLINE, "waited in vain until {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A call that another session holds up.
pub struct HeldUp<T> {
    thread: JoinHandle<(Client, T)>,
}

impl<T: Send + 'static> HeldUp<T> {
    /// Makes the call in a thread of its own, and returns once it waits for another session's lock.
    pub fn start(
        database: &Database,
        mut session: Client,
        call: impl FnOnce(&mut Client) -> T + Send + 'static,
    ) -> Self {
        let mut observer = database.session();
        let backend = session.backend();
        let thread = thread::spawn(move || {
            let answer = call(&mut session);
            (session, answer)
        });
        until("the call is held up", || {
            assert!(!thread.is_finished(), "the call was to be held up, and came back");
            observer.value("SELECT pg_blocking_pids($1) <> '{}'", &[&backend])
        });
        Self { thread }
    }

    /// Its answer, and the session it was made in.
    pub fn answer(self) -> (Client, T) {
        self.thread.join().expect("the call comes back")
    }
}
