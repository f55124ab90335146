//! The documents, read by programs of other projects: the clients of OpenLineage and STAC, an RDF
//! library, in-toto's and a parser of Cypher.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use hapax::Digest;
use hapax::json::Json;
use hapax_pipeline::Moment;
use hapax_pipeline::lineage::{Completed, attestation, cypher, dcat, openlineage, prov, stac};

use crate::fixture::{awkward, completed, ids, moments};

/// Proves P-11, P-12.
#[test]
fn other_peoples_programs_read_the_documents() {
    let python = environment();
    let room = tempfile::tempdir().unwrap();
    for (name, moment) in [("plain", completed()), ("awkward", awkward())] {
        let place = room.path().join(name);
        fs::create_dir(&place).unwrap();
        write_completed(&place, &moment);
    }
    for (nth, moment) in moments().iter().chain([&awkward()]).enumerate() {
        write(
            room.path(),
            &format!("openlineage-{nth}.json"),
            &openlineage::event(moment, BUILDER),
        );
        let body = cypher::transaction(&cypher::statements(moment));
        write(room.path(), &format!("cypher-{nth}.json"), &body);
    }
    let check = "tests/lineage/check.py";
    succeed(Command::new(python).args(["-I", check]).arg(room.path()));
}

const BUILDER: &str = "https://example.org/hapax";

fn write_completed(place: &Path, moment: &Moment) {
    let done = Completed::of(moment).expect("completed");
    write(place, "prov.jsonld", &prov::json_ld(&done));
    fs::write(place.join("prov.ttl"), prov::turtle(&done)).expect("written");
    write(place, "dcat.jsonld", &dcat::json_ld(&done));
    for (nth, edition) in done.editions().iter().enumerate() {
        write(place, &format!("item-{nth}.json"), &stac::item(&done, edition));
        let items = ids(std::slice::from_ref(edition));
        let collection =
            stac::collection(&stac::Newest::of(&done, edition.dataset), edition.dataset, &items);
        write(place, &format!("collection-{nth}.json"), &collection);
        let statement = attestation::statement(&done, edition.artifacts[0], BUILDER);
        let statement = statement.expect("a digest");
        // The script that checks can compute the same from the signed bytes, and needs no key.
        let sign = |bytes: &[u8]| ("digest".to_owned(), Digest::of(bytes).as_bytes().to_vec());
        write(place, &format!("envelope-{nth}.json"), &attestation::seal(&statement, sign));
    }
}

fn write(place: &Path, name: &str, document: &Json) {
    let text = hapax::canonical::canonical(document).expect("canonical");
    fs::write(place.join(name), text).expect("written");
}

/// A Python with the programs, in the versions of `requirements.txt`. It is kept, and one test at a
/// time makes it.
fn environment() -> PathBuf {
    const PROGRAMS: &str = include_str!("requirements.txt");
    let tmp = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (room, ready) = (tmp.join("python-lineage"), tmp.join("python-lineage/programs.txt"));
    let turn = File::create(tmp.join("python-lineage.lock")).expect("a file to lock");
    turn.lock().expect("locked");
    if fs::read_to_string(&ready).ok().as_deref() != Some(PROGRAMS) {
        succeed(Command::new("/usr/bin/python3").args(["-m", "venv", "--clear"]).arg(&room));
        let wanted = "tests/lineage/requirements.txt";
        let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", wanted];
        succeed(Command::new(room.join("bin/python")).args(pip));
        fs::write(&ready, PROGRAMS).expect("written");
    }
    room.join("bin/python")
}

fn succeed(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{command:?}:\n{}", String::from_utf8_lossy(&text));
}
