//! Disks that fail and disks that fill.

use std::process::Command;

use super::{LedgerDir, Ran, available};

/// Proves K-10: a sync that fails is never followed by an acknowledgement.
#[test]
fn a_failing_sync_is_never_acknowledged() {
    if !available("strace") {
        return;
    }
    let dir = LedgerDir::new();
    dir.hapax(&["run", "-k", "before", "--", "true"]).exits(0);
    let mut failed = 0;
    for nth in 1..=8 {
        let key = format!("k{nth}");
        let output = Command::new("strace")
            .args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=fdatasync", "-e"])
            .arg(format!("inject=fdatasync:error=EIO:when={nth}+"))
            .arg(env!("CARGO_BIN_EXE_hapax"))
            .args(["run", "-k", &key, "--", "sh", "-c", &format!("echo {key} >> ran; echo done")])
            .current_dir(dir.path(""))
            .output()
            .unwrap();
        let ran = Ran::from(output);
        // Every claim and every outcome that was acknowledged before the disk failed is recorded.
        let shown = dir.hapax(&["effects", "list", "--json"]).exits(0);
        let line = shown.out.lines().find(|line| line.contains(&format!("\"label\":\"{key}\"")));
        let executed = dir.read("ran").lines().any(|line| line == key);
        assert!(!executed || line.is_some(), "ran without a record: {ran:?}");
        if ran.code == Some(0) {
            assert!(line.is_some_and(|line| line.contains("\"state\":\"succeeded\"")), "{ran:?}");
        } else {
            failed += 1;
            let code = if executed { "HX0213" } else { "HX010" };
            assert!(ran.err.contains(code), "{ran:?}");
        }
    }
    assert!(failed > 0, "no fault ever hit a commit");
    dir.hapax(&["journal", "verify"]).exits(0);
}

/// Proves K-10: a full disk is a plain error, and work resumes when there is room.
#[test]
fn a_full_disk_is_said_plainly_and_work_resumes() {
    let dir = LedgerDir::new();
    let script = r#"
        set -e
        mkdir small && mount -t tmpfs -o size=1m tmpfs small && cd small
        "$HAPAX" run -k before -- echo before
        dd if=/dev/zero of=filler bs=4k 2>/dev/null || true
        "$HAPAX" run -k full -- touch ran && exit 90 || echo "code $?"
        [ ! -e ran ] || exit 91
        rm filler
        "$HAPAX" run -k full -- echo resumed
        "$HAPAX" run -k before -- echo before
        "$HAPAX" journal verify
    "#;
    let output = Command::new("unshare")
        .args(["--map-root-user", "--mount", "sh", "-c", script])
        .env("HAPAX", env!("CARGO_BIN_EXE_hapax"))
        .current_dir(dir.path(""))
        .output();
    let ran = match output {
        Ok(output) => Ran::from(output),
        Err(error) => return eprintln!("skipped: unshare: {error}"),
    };
    if ran.err.contains("unshare") || ran.err.contains("mount:") {
        return eprintln!("skipped: this machine does not let us mount a small disk: {}", ran.err);
    }
    let ran = ran.exits(0).says("HX0102");
    assert!(ran.out.starts_with("before\ncode 69\nresumed\nbefore\nintact"), "{ran:?}");
}
