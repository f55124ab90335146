"""Reads the documents of lineage with other people's programs: `check.py <directory>`."""

import datetime
import hashlib
import json
import pathlib
import sys
import types
import typing
import urllib.parse
import uuid

import antlr4
import attr
import jsonschema
import pystac
import pystac.validation
import rdflib
import rdflib.compare
from antlr4.error.ErrorListener import ErrorListener
from antlr4_cypher import CypherLexer, CypherParser
from google.protobuf import json_format
from in_toto_attestation.predicates.provenance.v1 import provenance_pb2
from in_toto_attestation.v1 import statement_pb2
from in_toto_attestation.v1.statement import Statement
from openlineage.client import event_v2, facet_v2
from openlineage.client.serde import Serde
from pystac.extensions.file import FileExtension
from securesystemslib.dsse import Envelope

STANDARD = {
    "nominalTime": facet_v2.nominal_time_run.NominalTimeRunFacet,
    "errorMessage": facet_v2.error_message_run.ErrorMessageRunFacet,
    "version": facet_v2.dataset_version_dataset.DatasetVersionDatasetFacet,
    "ownership": facet_v2.ownership_dataset.OwnershipDatasetFacet,
    "outputStatistics": facet_v2.output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet,
}


def fits(value, hint):
    """Whether a value is of the type that a class of OpenLineage's client declares."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, each) for each in inner)
    if origin is list:
        return isinstance(value, list) and all(fits(each, inner[0]) for each in value)
    if attr.has(hint):
        hint(**value)
        return all(fits(value[name], each) for name, each in hints(hint).items() if name in value)
    return type(value) is hint


def hints(kind):
    return {name: hint for name, hint in typing.get_type_hints(kind).items() if name[0] != "_"}


def facets(given, base):
    made = {}
    for name, facet in (given or {}).items():
        facet = dict(facet)
        producer, schema = facet.pop("_producer"), facet.pop("_schemaURL")
        if name in STANDARD:
            kind = STANDARD[name]
            for field, value in facet.items():
                assert fits(value, hints(kind)[field]), (name, field, value)
            made[name] = kind(**facet, producer=producer)
            assert made[name]._schemaURL == schema, (made[name]._schemaURL, schema)
        else:
            assert name.startswith("hapax_") and schema.startswith("urn:hapax:"), name
            made[name] = base(producer=producer).with_additional_properties(**facet)
            made[name]._schemaURL = schema
    return made


def dataset(given, kind, extra, base):
    assert set(given) <= {"namespace", "name", "facets", extra}, given
    own = {extra: facets(given.get(extra), base)}
    of_dataset = facets(given["facets"], facet_v2.DatasetFacet)
    return kind(namespace=given["namespace"], name=given["name"], facets=of_dataset, **own)


FACETS = {
    "type": "object",
    "additionalProperties": {
        "type": "object",
        "required": ["_producer", "_schemaURL"],
        "properties": {
            "_producer": {"type": "string", "format": "uri"},
            "_schemaURL": {"type": "string", "format": "uri"},
        },
    },
}

NAMED = {"type": "string", "minLength": 1}


def datasets(extra):
    return {
        "type": "array",
        "items": {
            "type": "object",
            "required": ["namespace", "name"],
            "properties": {"namespace": NAMED, "name": NAMED, "facets": FACETS, extra: FACETS},
        },
    }


# What a run event has to have, in our words.
RUN_EVENT = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "required": ["eventTime", "eventType", "producer", "schemaURL", "run", "job"],
    "properties": {
        "eventTime": {"type": "string", "format": "date-time"},
        "eventType": {"enum": ["START", "RUNNING", "COMPLETE", "ABORT", "FAIL", "OTHER"]},
        "producer": {"type": "string", "format": "uri"},
        "schemaURL": {
            "type": "string",
            "format": "uri",
            "pattern": "^https://openlineage.io/spec/.*/RunEvent$",
        },
        "run": {
            "type": "object",
            "required": ["runId"],
            "properties": {"runId": {"type": "string", "format": "uuid"}, "facets": FACETS},
        },
        "job": {
            "type": "object",
            "required": ["namespace", "name"],
            "properties": {"namespace": NAMED, "name": NAMED, "facets": FACETS},
        },
        "inputs": datasets("inputFacets"),
        "outputs": datasets("outputFacets"),
    },
}

FORMATS = jsonschema.FormatChecker(formats=[])


@FORMATS.checks("uri", raises=ValueError)
def is_uri(text):
    """An absolute one: a scheme, and something after it, without spaces."""
    parts = urllib.parse.urlsplit(text)
    return bool(parts.scheme and (parts.netloc or parts.path)) and not set(text) & set(' <>"{}')


@FORMATS.checks("uuid", raises=ValueError)
def is_uuid(text):
    return str(uuid.UUID(text)) == text


@FORMATS.checks("date-time", raises=ValueError)
def is_time(text):
    return "T" in text and datetime.datetime.fromisoformat(text).tzinfo is not None


jsonschema.Draft202012Validator.check_schema(RUN_EVENT)
RULES = jsonschema.Draft202012Validator(RUN_EVENT, format_checker=FORMATS)


def strict(given):
    """The rules let the event pass, and would not if any of it were otherwise."""
    RULES.validate(given)
    for name in RUN_EVENT["required"]:
        assert not RULES.is_valid({key: each for key, each in given.items() if key != name}), name
    for name, wrong in (
        ("eventTime", given["eventTime"].rstrip("Z")),
        ("eventType", "DONE"),
        ("producer", "hapax"),
        ("run", {**given["run"], "runId": "7"}),
        ("run", {**given["run"], "facets": {"own": {"_producer": given["producer"]}}}),
        ("job", {"name": given["job"]["name"]}),
        ("inputs", [{"namespace": "default"}]),
    ):
        assert not RULES.is_valid({**given, name: wrong}), (name, wrong)


def openlineage(path):
    """The event, put together from the client's own classes, is the event again."""
    given = json.loads(path.read_text())
    strict(given)
    run, job = given["run"], given["job"]
    event = event_v2.RunEvent(
        eventTime=given["eventTime"],
        eventType=event_v2.RunState(given["eventType"]),
        producer=given["producer"],
        run=event_v2.Run(runId=run["runId"], facets=facets(run["facets"], facet_v2.RunFacet)),
        job=event_v2.Job(**job),
        inputs=[
            dataset(each, event_v2.InputDataset, "inputFacets", facet_v2.InputDatasetFacet)
            for each in given["inputs"]
        ],
        outputs=[
            dataset(each, event_v2.OutputDataset, "outputFacets", facet_v2.OutputDatasetFacet)
            for each in given["outputs"]
        ],
    )
    written = json.loads(Serde.to_json(event))
    assert filled(written) == filled(given), (written, given)
    assert bool(given["outputs"]) <= (given["eventType"] == "COMPLETE"), given
    return given["eventType"]


def filled(value):
    """Without empty objects, which the client adds."""
    if isinstance(value, dict):
        return {name: filled(each) for name, each in value.items() if each != {}}
    return [filled(each) for each in value] if isinstance(value, list) else value


def provenance(place):
    """Both forms are one graph, and it answers what produced an artifact, and from what."""
    turtle = rdflib.Graph().parse(place / "prov.ttl", format="turtle")
    json_ld = rdflib.Graph().parse(place / "prov.jsonld", format="json-ld")
    assert rdflib.compare.isomorphic(turtle, json_ld), list(turtle ^ json_ld)
    found = turtle.query(
        """
        SELECT ?artifact ?run ?source ?who WHERE {
            ?artifact prov:wasGeneratedBy ?run ; prov:wasDerivedFrom ?source .
            ?run a prov:Activity ; prov:used ?source ; prov:wasAssociatedWith ?agent .
            ?agent foaf:name ?who .
        }
        """
    )
    found = {(str(row.artifact), str(row.run), str(row.source), str(row.who)) for row in found}
    return turtle, found


def catalog(place):
    graph = rdflib.Graph().parse(place / "dcat.jsonld", format="json-ld")
    found = graph.query(
        """
        PREFIX spdx: <http://spdx.org/rdf/terms#>
        SELECT ?dataset ?run ?url ?hex ?size ?journal ?stac WHERE {
            ?dataset a dcat:Dataset ; prov:wasGeneratedBy ?run ; dcat:distribution ?distribution ;
                <urn:hapax:ns:journal> ?journal ; <urn:hapax:ns:stac> ?stac .
            ?distribution a dcat:Distribution ; dcat:downloadURL ?url ; dcat:byteSize ?size ;
                spdx:checksum [ spdx:algorithm spdx:checksumAlgorithm_sha256 ;
                                spdx:checksumValue ?hex ] .
        }
        """
    )
    return graph, list(found)


def stac(place):
    """The schemas of the specification come with pystac; those of extensions do not, so the file
    extension is read by the class that pystac has for it."""
    items = []
    for path in sorted(place.glob("item-*.json")):
        given = json.loads(path.read_text())
        pystac.validation.validate_dict(given, extensions=[])
        item = pystac.Item.from_dict(given)
        assert item.geometry is None and item.bbox is None
        for asset in item.assets.values():
            file = FileExtension.ext(asset)
            multihash = bytes.fromhex(file.checksum)
            assert multihash[:2] == b"\x12\x20" and len(multihash) == 34, file.checksum
            assert isinstance(file.size, int), file.size
        items.append(item)
    for path, item in zip(sorted(place.glob("collection-*.json")), items, strict=True):
        given = json.loads(path.read_text())
        pystac.validation.validate_dict(given, extensions=[])
        collection = pystac.Collection.from_dict(given)
        assert item.collection_id == collection.id
        assert f"./{item.id}/{item.id}.json" in [it.href for it in collection.get_item_links()]
    return items


def attested(place):
    """The envelope holds what it says, and the statement in it is one of SLSA provenance."""
    subjects = []
    for path in sorted(place.glob("envelope-*.json")):
        envelope = Envelope.from_dict(json.loads(path.read_text()))
        (signature,) = envelope.signatures.values()
        assert bytes.fromhex(signature.signature) == hashlib.sha256(envelope.pae()).digest()
        given = json.loads(envelope.payload)
        statement = json_format.ParseDict(given, statement_pb2.Statement())
        Statement.copy_from_pb(statement).validate()
        made = json_format.ParseDict(given["predicate"], provenance_pb2.Provenance())
        subjects.append((made.run_details.metadata.invocation_id, statement.subject[0]))
    return subjects


class Strict(ErrorListener):
    def syntaxError(self, recognizer, symbol, line, column, message, error):
        raise SyntaxError(f"{line}:{column}: {message}")


def cypher(path):
    for statement in json.loads(path.read_text())["statements"]:
        lexer = CypherLexer(antlr4.InputStream(statement["statement"]))
        parser = CypherParser(antlr4.CommonTokenStream(lexer))
        for part in (lexer, parser):
            part.removeErrorListeners()
            part.addErrorListener(Strict())
        parser.script()
        wanted = {word.strip("[](),}:|") for word in statement["statement"].split()}
        wanted = {word[1:] for word in wanted if word.startswith("$")}
        assert wanted == set(statement["parameters"]), (wanted, statement["parameters"].keys())


def main(room):
    kinds = {openlineage(path) for path in room.glob("openlineage-*.json")}
    assert kinds == {"START", "RUNNING", "COMPLETE", "FAIL", "ABORT"}, kinds
    for path in room.glob("cypher-*.json"):
        cypher(path)
    for place, files in ((room / "plain", 1), (room / "awkward", 3)):
        turtle, found = provenance(place)
        graph, distributions = catalog(place)
        items, subjects = stac(place), attested(place)
        assert len(distributions) == files, distributions
        assert sum(len(item.assets) for item in items) == files

        # Each names the others: the run, the entry of the journal, the artifact, the item.
        (run,) = {row[1] for row in found}

        def names(kind):
            named = turtle.objects(rdflib.URIRef(run), rdflib.URIRef(f"urn:hapax:ns:{kind}"))
            return {str(name) for name in named}

        assert names("openlineage") == {run}
        assert names("dcat") == {row[0] for row in found}
        assert names("dcat") == {str(row.dataset) for row in distributions}
        assert names("journal") == {str(row.journal) for row in distributions}
        assert names("stac") == {str(row.stac) for row in distributions}
        assert names("stac") == {f"urn:hapax:stac:{item.id}" for item in items}
        for item in items:
            documents = item.properties["hapax:documents"]
            assert {f"urn:uuid:{item.properties['hapax:run_id']}"} == {run}
            assert documents["openlineage"] == [run]
            for kind in ("dcat", "journal", "prov", "stac"):
                assert set(documents[kind]) <= names(kind), (kind, documents)
        for row in distributions:
            assert str(row.run) == run
        digests = {str(row.hex).lower() for row in distributions}
        for invocation, subject in subjects:
            assert f"urn:uuid:{invocation}" == run
            assert subject.digest["sha256"] in digests
        sources = {row[2] for row in found}
        assert len(sources) == 2 and len(found) == 2 * len(items), found
        turtle.serialize(format="nt")
        graph.serialize(format="nt")


main(pathlib.Path(sys.argv[1]))
