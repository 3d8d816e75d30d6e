//! Several sessions at once.

use crate::database::Database;
use postgres::Client;
use std::sync::Barrier;
use std::thread;

/// Has that many sessions do the same thing at the same time; what each has to say, in their order.
pub fn each<T: Send>(
    database: &Database,
    sessions: usize,
    work: impl Fn(usize, &mut Client) -> T + Sync,
) -> Vec<T> {
    let start = Barrier::new(sessions);
    let clients: Vec<Client> = (0..sessions).map(|_| database.session()).collect();
    thread::scope(|scope| {
        let run = |(number, mut client): (usize, Client)| {
            let (start, work) = (&start, &work);
            scope.spawn(move || {
                start.wait();
                work(number, &mut client)
            })
        };
        let threads: Vec<_> = clients.into_iter().enumerate().map(run).collect();
        threads.into_iter().map(|thread| thread.join().expect("the session's work is done")).collect()
    })
}
