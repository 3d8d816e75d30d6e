//! A server of a test's own, to be killed.

use crate::server::{as_server_user, program_of_server, succeed};
use crate::sql::Sql;
use crate::waiting;
use postgres::{Client, Config, NoTls};
use std::path::{Path, PathBuf};
use std::process::Command;

pub struct Cluster {
    home: PathBuf,
}

const SETTINGS: &str = "listen_addresses = ''\nfsync = on\nmax_prepared_transactions = 5\n";

impl Cluster {
    /// One that runs, with the extension in its database `postgres`.
    pub fn start_new() -> Self {
        // A short path: a socket's has at most 107 bytes.
        let home = succeed(as_server_user("mktemp").args(["-d", "/tmp/outbox-XXXXXX"]));
        let cluster = Self { home: home.trim().into() };
        succeed(
            program_of_server("initdb")
                .args([
                    "--username=postgres",
                    "--auth=trust",
                    "--encoding=UTF8",
                    "--locale=C",
                    "--no-sync",
                    "-D",
                ])
                .arg(cluster.data()),
        );
        cluster.configure();
        cluster.start();
        cluster.session().run("CREATE EXTENSION outbox_ext");
        cluster
    }

    /// A new session of the superuser.
    pub fn session(&self) -> Client {
        self.connect().expect("the cluster answers")
    }

    /// Ends the server at once, as a crash or a loss of power would: nothing is written any more.
    pub fn kill(&self) {
        let lock = std::fs::read_to_string(self.data().join("postmaster.pid")).expect("the server runs");
        let postmaster = lock.lines().next().expect("its process id").to_owned();
        // The shell's own kill: not every machine has the program.
        succeed(Command::new("sh").args(["-c", "kill -KILL \"$0\"", &postmaster]));
    }

    /// Starts the server, which may have been killed. Backends that have not noticed yet that their postmaster
    /// is gone keep the shared memory, so it may take more than one try.
    pub fn start(&self) {
        waiting::until("the cluster starts", || {
            let mut start = program_of_server("pg_ctl");
            start
                .args(["start", "--wait", "--silent", "-l"])
                .arg(self.home.join("log"))
                .arg("-D")
                .arg(self.data());
            // Not output(): the server would inherit the pipe and keep it open.
            start.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
            start.status().is_ok_and(|status| status.success())
        });
    }

    fn configure(&self) {
        let settings = format!("{SETTINGS}unix_socket_directories = '{}'\n", self.home.display());
        let path = self.data().join("postgresql.conf");
        let before = std::fs::read_to_string(&path).expect("initdb wrote a configuration");
        std::fs::write(&path, before + &settings).expect("the configuration can be written");
    }

    fn connect(&self) -> Result<Client, postgres::Error> {
        Config::new().host_path(&self.home).user("postgres").dbname("postgres").connect(NoTls)
    }

    fn data(&self) -> PathBuf {
        self.home.join("data")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        stop(&self.data());
        let removed = as_server_user("rm").arg("-rf").arg(&self.home).status();
        if !removed.is_ok_and(|status| status.success()) {
            eprintln!("{} was not removed", self.home.display());
        }
    }
}

fn stop(data: &Path) {
    // It may not be running: nothing to say then.
    let _ =
        program_of_server("pg_ctl").args(["stop", "--silent", "-m", "immediate", "-D"]).arg(data).output();
}
