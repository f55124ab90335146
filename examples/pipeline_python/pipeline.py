#!/usr/bin/env python3
"""A pipeline in plain Python, on the command line and over HTTP.

    python3 examples/pipeline_python/pipeline.py [HAPAX]

HAPAX is the binary; without it, `hapax` is looked for on the PATH. Everything is in a temporary
directory. The readings are made up. What is not so ends the story with an error.
"""

import hashlib
import json
import os
import pathlib
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

READINGS = """station,date,discharge_cms
blue-creek,2026-06-01,11.8
elm-fork,2026-06-01,4.2
blue-creek,2026-06-02,12.4
elm-fork,2026-06-02,4.0
blue-creek,2026-06-03,19.6
elm-fork,2026-06-03,7.3
"""

CONFIG = """
[sinks.log]
kind = "file"
path = "events.jsonl"

[sinks.catalog]
kind = "catalog"
path = "catalog"

[[routes]]
event = "artifact_published"
sinks = ["log"]

[[routes]]
event = "lineage"
sinks = ["catalog"]

[datasets.flow]
owner = "state hydrologist"
care_label = "public"
output_contract = '{"type":"object","required":["station","mean_cms"],"properties":{"mean_cms":{"minimum":0}}}'
"""


def transform(readings, table):
    """The work: readings in, one row a station out. Counts how often it was done."""
    if pathlib.Path("slow").exists():
        pathlib.Path("begun").touch()
        time.sleep(60)
    stations = {}
    for line in pathlib.Path(readings).read_text().splitlines()[1:]:
        station, _, cms = line.split(",")
        stations.setdefault(station, []).append(float(cms))
    rows = [
        {"station": station, "mean_cms": round(sum(flows) / len(flows), 2)}
        for station, flows in sorted(stations.items())
    ]
    pathlib.Path(table).write_text("".join(json.dumps(row) + "\n" for row in rows))
    with open("done", "a") as done:
        done.write(f"{table}\n")
    return rows


def words(hapax, version, *more):
    """`hapax run` around any program. The options are the fields of the key."""
    run = [hapax, "run", "--pipeline", "hydrology", "--task", "publish", "--dataset", "flow"]
    run += ["--operation", "publish", "--version", version, "--input", "readings.csv"]
    run += ["--param", "unit=cms", "--logical-time", "2026-06-04T06:30:00Z"]
    run += ["--output", f"flow-{version}.jsonl", "--publish", "artifact_published", *more, "--"]
    run += [sys.executable, str(pathlib.Path(__file__).resolve()), "transform"]
    return run + ["readings.csv", f"flow-{version}.jsonl"]


def on_the_command_line(hapax, version, *more):
    run = words(hapax, version, *more)
    return subprocess.run(run, check=True, capture_output=True, text=True).stdout.strip()


def killed_on_the_way(hapax, version, *more):
    """The same, and `kill -9` while the program is at work."""
    pathlib.Path("slow").touch()
    with subprocess.Popen(words(hapax, version, *more), stdout=subprocess.DEVNULL) as running:
        wait_for("the program to begin", lambda: pathlib.Path("begun").exists())
        running.kill()
    pathlib.Path("slow").unlink()


def over_http(server):
    """Ask, do it, report. Returns the verdict and what came of the operation."""
    operation = {
        "pipeline_id": "hydrology",
        "task_id": "publish",
        "dataset_id": "flow",
        "operation_type": "publish",
        "version": "v2",
        "checksum_in": checksum("readings.csv"),
        "params_hash": "sha256:" + hashlib.sha256(b'{"unit":"cms"}').hexdigest(),
        "timestamp_bucket": "2026-06-04T00:00:00Z",
        "inputs": [{"name": "readings.csv", "checksum": checksum("readings.csv")}],
    }
    # A caller that names its attempt may repeat a request whose answer was lost, and gets the same answer.
    asked = {**operation, "attempt": "att_" + secrets.token_hex(16), "safety": "transactional"}
    answer = post(f"{server}/v1/operations", asked)
    if answer["verdict"] == "replayed":
        return answer, answer["outcome"]["body"]
    rows = transform("readings.csv", "flow-v2.jsonl")
    body = f"{len(rows)} stations"
    output = {
        "dataset_id": "flow",
        "version": "v2",
        "checksum": checksum("flow-v2.jsonl"),
        "uri": "flow-v2.jsonl",
        "size": os.path.getsize("flow-v2.jsonl"),
    }
    report = {"attempt": answer["attempt"], "fence": answer["fence"]}
    report |= {"report": "succeeded", "body": body}
    report |= {"outputs": [output], "documents": rows, "publish": "artifact_published"}
    post(f"{server}/v1/operations/{answer['key']}/settle", report)
    return answer, body


def story(hapax):
    pathlib.Path("readings.csv").write_text(READINGS)
    pathlib.Path("hapax.toml").write_text(CONFIG)
    subprocess.run([hapax, "outbox", "configure"], check=True, stdout=subprocess.DEVNULL)

    print("1. On the command line, twice.")
    first = on_the_command_line(hapax, "v1")
    print(f"   {first}")
    fact(done() == ["flow-v1.jsonl"], "the program ran")
    fact(on_the_command_line(hapax, "v1") == first, "the second time it prints the same")
    fact(done() == ["flow-v1.jsonl"], "and the program did not run")

    print("\n2. Killed while the program is at work, and run again.")
    # The program's own statement: its outputs count only once it exits 0.
    killed_on_the_way(hapax, "v3", "--safety", "transactional")
    fact(done() == ["flow-v1.jsonl"], "nothing came of it, and nothing was told")
    on_the_command_line(hapax, "v3", "--safety", "transactional")
    fact(done() == ["flow-v1.jsonl", "flow-v3.jsonl"], "the next call does it, at once")

    print("\n3. Over HTTP, twice.")
    with Server(hapax) as server:
        answer, body = over_http(server.address)
        print(f"   {answer['verdict']}: {answer['key']}")
        fact(answer["verdict"] == "granted", "the operation is granted, done and settled")
        again, told = over_http(server.address)
        print(f"   {again['verdict']}: {again['key']}")
        fact((again["verdict"], again["key"]) == ("replayed", answer["key"]), "then it is a replay")
        fact(told == body == "2 stations", f"which tells what came of it: {told}")
        fact(done()[2:] == ["flow-v2.jsonl"], "and nothing is done twice")
        lineage = get(f"{server.address}/v1/operations/{answer['key']}/lineage")["events"]
        words = [event["eventType"] for event in lineage]
        fact(words == ["START", "COMPLETE"], f"its lineage: {', '.join(words)}")

        print("\n4. The server delivers each published version once.")
        events = delivered(3)
        for event in events:
            print(f"   {event['outbox_id']} {event['event_name']} {event['payload']['artifact_uri']}")
        fact([event["version"] for event in events] == ["v1", "v3", "v2"], "in the order of things")
        labels = {event["payload"]["care_label"] for event in events}
        fact(labels == {"public"}, "with the label that the dataset asks for")
        items = lambda: list(pathlib.Path("catalog/stac").glob("*/*/*.json"))
        wait_for("the catalog", lambda: len(items()) == 3)
        fact(len(list(pathlib.Path("catalog/dcat").iterdir())) == 3, "STAC and DCAT have all three")

    print("\n5. The ledger of what was told.")
    subprocess.run([hapax, "outbox", "export", "--to", "ledger"], check=True, capture_output=True)
    ledger = json.loads(pathlib.Path("ledger/pipeline_outbox_ledger.json").read_text())
    told = [entry for entry in ledger if entry["event_name"] == "artifact_published"]
    states = {entry["status"] for entry in told}
    fact((len(told), states) == (3, {"dispatched"}), "three events, all of them dispatched")

    print("\n6. The journal, held against the files.")
    fact(replay(hapax) == (0, []), "everything is as recorded")
    pathlib.Path("flow-v1.jsonl").write_text("tampered with\n")
    fact(replay(hapax) == (73, ["flow-v1.jsonl"]), "the file that was changed is named")


def replay(hapax):
    """The exit code, and what is not as the journal says."""
    ended = subprocess.run([hapax, "journal", "replay", "--json"], capture_output=True, text=True)
    # The report is the first line; if something differs, the error is the second.
    found = json.loads(ended.stdout.splitlines()[0])
    return ended.returncode, [differs["which"] for differs in found["divergences"]]


class Server:
    """`hapax dev` on a free port, for as long as it is needed."""

    def __init__(self, hapax):
        self.command = [hapax, "dev", "--listen", "127.0.0.1:0"]

    def __enter__(self):
        self.log = open("server.log", "w+")
        self.process = subprocess.Popen(self.command, stdout=self.log, stderr=self.log)
        until = time.monotonic() + 20
        while time.monotonic() < until and self.process.poll() is None:
            said = pathlib.Path("server.log").read_text()
            if " serves " in said:
                self.address = next(w for w in said.split() if w.startswith("http://"))
                return self
            time.sleep(0.05)
        self.__exit__()
        raise SystemExit("hapax dev did not start:\n" + pathlib.Path("server.log").read_text())

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()


def post(url, document):
    body = json.dumps(document).encode()
    return get(urllib.request.Request(url, body, {"Content-Type": "application/json"}))


def get(request):
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        raise SystemExit(f"{error.code}: {error.read().decode()}") from None


def delivered(count):
    """The lines of the sink, once there are so many."""
    until, lines = time.monotonic() + 20, []
    while len(lines) < count and time.monotonic() < until:
        time.sleep(0.05)
        path = pathlib.Path("events.jsonl")
        lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


def wait_for(what, holds):
    until = time.monotonic() + 20
    while not holds():
        if time.monotonic() > until:
            raise SystemExit(f"waited in vain for {what}")
        time.sleep(0.05)


def checksum(path):
    return "sha256:" + hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()


def done():
    return pathlib.Path("done").read_text().split()


def fact(holds, text):
    if not holds:
        raise SystemExit(f"it is not so that {text}")
    print(f"   ✓ {text}")


def main(words):
    if words[:1] == ["transform"]:
        print(f"{len(transform(*words[1:]))} stations")
        return
    hapax = shutil.which(words[0] if words else "hapax")
    if hapax is None:
        raise SystemExit("say where the hapax binary is: pipeline.py path/to/hapax")
    hapax = os.path.abspath(hapax)
    for name in [name for name in os.environ if name.startswith("HAPAX_")]:
        del os.environ[name]
    home = os.getcwd()
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        try:
            story(hapax)
        finally:
            os.chdir(home)


if __name__ == "__main__":
    main(sys.argv[1:])
