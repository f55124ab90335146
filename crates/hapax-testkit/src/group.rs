//! Processes that end with everything they started.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};

/// A process and everything it started.
pub(crate) struct Group {
    child: Child,
}

impl Group {
    pub(crate) fn spawn(command: &mut Command, output: Stdio) -> Self {
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(output);
        let program = PathBuf::from(command.get_program());
        let child = command.spawn();
        Self { child: child.unwrap_or_else(|error| panic!("{}: {error}", program.display())) }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let _ = kill_process_group(Pid::from_child(&self.child), signal);
    }

    /// Whether the process has ended by itself.
    pub(crate) fn is_over(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_some())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        let _ = self.child.wait();
    }
}
