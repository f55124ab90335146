//! Disks that lose power, fail to sync, or are full.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use hapax_testkit::Postgres;
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};

use crate::field::{Field, Running, room};
use crate::processes::conclude;
use crate::report::Report;

/// ext4 on a loop device. When it loses power, it keeps synced data and nothing else.
struct Disk {
    directory: tempfile::TempDir,
}

/// Shuts ext4 down without flushing its log, as a power cut would.
const CUT: &str = "import fcntl, os, struct, sys
fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587D, struct.pack('I', 2))";

impl Disk {
    /// A new disk; the error says why this machine cannot have one.
    fn new(size: &str) -> Result<Self, String> {
        let disk = Self { directory: room() };
        let image = disk.image();
        run("truncate", &["-s", size, &image])?;
        run("mkfs.ext4", &["-q", "-F", "-E", "lazy_itable_init=0", &image])?;
        std::fs::create_dir(disk.mount_point()).map_err(|error| error.to_string())?;
        disk.mount()?;
        Ok(disk)
    }

    fn image(&self) -> String {
        self.directory.path().join("image").to_string_lossy().into_owned()
    }

    fn mount_point(&self) -> PathBuf {
        self.directory.path().join("disk")
    }

    fn mount(&self) -> Result<(), String> {
        run("mount", &["-o", "loop", &self.image(), &self.mount_point().to_string_lossy()])
    }

    fn cut_power(&self) -> Result<(), String> {
        run("python3", &["-c", CUT, &self.mount_point().to_string_lossy()])
    }

    fn unmount(&self) -> Result<(), String> {
        run("umount", &[&*self.mount_point().to_string_lossy()])
    }

    /// Restores the power. The processes that used the disk must have ended.
    fn restore_power(&self) -> Result<(), String> {
        self.unmount()?;
        self.mount()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = self.unmount();
    }
}

fn run(program: &str, words: &[&str]) -> Result<(), String> {
    let output = Command::new(program)
        .args(words)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{program}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

/// Cuts the power of a ledger in a file, this often, while workers write to it.
pub fn power_cuts(cuts: u64, seed: u64, bug: Option<&str>, report: &mut Report) {
    let disk = match Disk::new("256M") {
        Ok(disk) => disk,
        Err(why) => {
            return report.skip(format!("power cuts need root, loop devices and ext4: {why}"));
        }
    };
    let ledger = disk.mount_point().join("hapax.db");
    // The key lies beside the ledger, as in production, and must survive like it.
    let mut field =
        Field::shared(ledger.to_string_lossy(), &disk.mount_point().join("hapax.db-key"));
    field.bug = bug.map(str::to_owned);
    let mut dice = SmallRng::seed_from_u64(seed);
    let mut front = 0;
    for _ in 0..cuts {
        let mut workers: Vec<Running> =
            (0..2).map(|_| field.worker(front_from(front)..u64::MAX, &[])).collect();
        let at_work = workers.iter_mut().all(Running::is_at_work);
        std::thread::sleep(Duration::from_micros(dice.random_range(0..30_000)));
        let cut = disk.cut_power();
        workers.iter_mut().for_each(Running::kill);
        front = workers.iter().map(Running::front).max().unwrap_or(front).max(front);
        if let Err(why) = cut.and_then(|()| disk.restore_power()) {
            return report.violation(format!("the disk could not be cut and restored: {why}"));
        }
        report.expect(at_work, || "a worker ended before the cut".into());
        report.count("power cuts while workers wrote", 1);
    }
    conclude(&field, report);
}

/// Cuts the power of a PostgreSQL server, this often, while workers write to it.
pub fn postgres_power_cuts(cuts: u64, seed: u64, report: &mut Report) {
    let disk = match Disk::new("1G") {
        Ok(disk) => disk,
        Err(why) => {
            return report.skip(format!("power cuts need root, loop devices and ext4: {why}"));
        }
    };
    let mut server = Postgres::within(&disk.mount_point(), &["shared_buffers=32MB"]);
    let field = Field::at(server.database("proof"));
    // Files from before the first worker are not under test.
    let _ = run("sync", &["-f", &disk.mount_point().to_string_lossy()]);
    let mut dice = SmallRng::seed_from_u64(seed);
    let mut workers: Vec<Running> = (0..2).map(|_| field.worker(0..u64::MAX, &[])).collect();
    for _ in 0..cuts {
        let at_work = workers.iter_mut().all(Running::is_at_work);
        std::thread::sleep(Duration::from_millis(dice.random_range(0..200)));
        let cut = disk.cut_power();
        server.kill();
        let front = workers.iter().map(Running::front).max().unwrap_or(0);
        workers.iter_mut().for_each(Running::kill);
        if let Err(why) = cut.and_then(|()| disk.restore_power()) {
            return report.violation(format!("the disk could not be cut and restored: {why}"));
        }
        server.up();
        report.expect(at_work, || "a worker ended before the cut".into());
        report.count("power cuts while workers wrote", 1);
        workers = (0..2).map(|_| field.worker(front_from(front)..u64::MAX, &[])).collect();
    }
    workers.clear();
    conclude(&field, report);
}

/// A few keys before the newest, so that keys in flight are claimed again.
fn front_from(front: u64) -> u64 {
    front.saturating_sub(16)
}

/// Lets the nth sync fail, and all after it, for each n up to `syncs`.
pub fn failing_syncs(syncs: u64, report: &mut Report) {
    if run("strace", &["--version"]).is_err() {
        return report.skip("failing syncs need strace");
    }
    for nth in 1..=syncs {
        let mut field = Field::in_file();
        // Making a file takes many syncs. Every other run finds the file there, so that syncs fail
        // which a caller waits for.
        if nth % 2 == 0 {
            let mut maker = field.worker(0..1, &[]);
            report.expect(maker.ends(Duration::from_secs(60)), || "the worker hangs".into());
        }
        field.wrapper = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fdatasync", "-e"]
            .map(str::to_owned)
            .into();
        field.wrapper.push(format!("inject=fdatasync:error=EIO:when={nth}+"));
        let mut worker = field.worker(0..200, &["--callers", "4"]);
        report.expect(worker.ends(Duration::from_secs(60)), || "the worker hangs".into());
        report.count("runs in which a sync failed", 1);
        field.wrapper.clear();
        let keys = 0..field.front();
        field.finish(keys.clone());
        field.judge(keys, report);
        field.verify(report);
    }
    let stopped = report.figure("calls answered with HX0104");
    report.expect(stopped > 0, || "vacuous: no call was answered with HX0104".into());
}

/// Fills the disk of a ledger while workers write, then makes room, this often.
pub fn full_disks(times: u64, report: &mut Report) {
    for _ in 0..times {
        if let Err(why) = full_disk(report) {
            return report.skip(format!("full disks need root and tmpfs: {why}"));
        }
    }
    let refused = report.figure("calls answered with HX0102");
    report.expect(refused > 0, || "vacuous: no call was answered with HX0102".into());
}

fn full_disk(report: &mut Report) -> Result<(), String> {
    let directory = room();
    let mount = directory.path().join("small");
    std::fs::create_dir(&mount).map_err(|error| error.to_string())?;
    let place = mount.to_string_lossy().into_owned();
    run("mount", &["-t", "tmpfs", "-o", "size=600k", "tmpfs", &place])?;
    let _mounted = Mounted(&mount);
    let field = Field::at(mount.join("hapax.db").to_string_lossy());
    let mut worker = field.worker(0..3_000, &[]);
    // Until a call is answered with "the disk is full".
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    while !worker.wrote("HX0102") && !worker.has_ended() && std::time::Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    report.count("disks filled while a worker wrote", 1);
    run("mount", &["-o", "remount,size=100m", &place])?;
    // The same process goes on when there is room.
    report.expect(worker.ends(Duration::from_secs(60)), || "the worker hangs".into());
    report.expect(worker.wrote(" over"), || "the worker ended badly".into());
    let keys = 0..field.front();
    field.finish(keys.clone());
    field.judge(keys, report);
    field.verify(report);
    Ok(())
}

struct Mounted<'a>(&'a Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = run("umount", &["-l", &self.0.to_string_lossy()]);
    }
}
