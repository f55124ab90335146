//! A program as a maintainer: evidence on its standard input, a proposal on its standard output,
//! the id of the question in the variable `HAPAX_REPAIR`.

use std::process::Stdio;
use std::time::Duration;

use async_trait::async_trait;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;

use super::{MAX_PROPOSAL, Maintainer};

/// A program that repairs scripts.
#[derive(Debug, Clone)]
pub struct Program {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// How long it may take.
    pub timeout: Duration,
}

#[async_trait]
impl Maintainer for Program {
    async fn propose(&self, id: &str, evidence: &str) -> Result<String, String> {
        let Some((program, arguments)) = self.command.split_first() else {
            return Err("no program is named".into());
        };
        let mut child = Command::new(program)
            .args(arguments)
            .env("HAPAX_REPAIR", id)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("{program} does not start: {error}"))?;
        let (Some(mut stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(format!("{program} has no standard input or output"));
        };
        let write = async {
            // A program that does not read all of it may still answer.
            let _ = stdin.write_all(evidence.as_bytes()).await;
            drop(stdin);
        };
        let mut answer = String::new();
        let mut stdout = stdout.take(MAX_PROPOSAL as u64 + 1);
        let work = async {
            let (_, read) = tokio::join!(write, stdout.read_to_string(&mut answer));
            read.map_err(|error| format!("reading the output of {program} failed: {error}"))?;
            if answer.len() > MAX_PROPOSAL {
                return Err(format!("{program} wrote more than {MAX_PROPOSAL} bytes"));
            }
            let status = child.wait().await.map_err(|error| format!("{program}: {error}"))?;
            match status.success() {
                true => Ok(()),
                false => Err(format!("{program} ended with {status}")),
            }
        };
        match tokio::time::timeout(self.timeout, work).await {
            Ok(done) => done.map(|()| answer),
            Err(_) => Err(format!("{program} did not answer within {:?}", self.timeout)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(line: &str) -> Program {
        let command = ["sh", "-c", line].map(str::to_owned).to_vec();
        Program { command, timeout: Duration::from_secs(10) }
    }

    async fn propose(program: Program, evidence: &str) -> Result<String, String> {
        program.propose("sha256:00", evidence).await
    }

    /// Proves I-11: a maintainer may be a program.
    #[tokio::test]
    async fn a_program_reads_evidence_and_writes_a_proposal() {
        let answer = propose(shell("tr a-z A-Z; echo $HAPAX_REPAIR"), "evidence").await;
        assert_eq!(answer.as_deref(), Ok("EVIDENCEsha256:00\n"));
        let deaf = propose(shell("exec 0<&-; echo said"), &"x".repeat(1 << 20)).await;
        assert_eq!(deaf.as_deref(), Ok("said\n"));
        let failed = propose(shell("exit 3"), "").await;
        assert!(failed.is_err_and(|error| error.contains("exit status: 3")));
        let endless = propose(shell("exec yes"), "").await;
        assert!(endless.is_err_and(|error| error.contains("more than 1048576 bytes")));
        let missing = Program { command: vec!["/no/such/program".into()], ..shell("") };
        assert!(propose(missing, "").await.is_err());
        let slow = Program { timeout: Duration::from_millis(50), ..shell("exec sleep 60") };
        assert!(propose(slow, "").await.is_err_and(|error| error.contains("did not answer")));
    }
}
