UNWIND $datasets AS dataset
MERGE (d:Dataset {id: dataset.id})
SET d.name = dataset.name

UNWIND $versions AS version
MERGE (d:Dataset {id: version.dataset})
MERGE (v:Version {id: version.id})
MERGE (v)-[:VERSION_OF]->(d)
WITH v, version WHERE coalesce(v.entry, 0) <= $entry
SET v += version.properties, v.entry = $entry

MERGE (a:Activity {id: $id})
WITH a WHERE coalesce(a.entry, 0) <= $entry
SET a += $properties

UNWIND $used AS used
MERGE (a:Activity {id: $id})
MERGE (u:Version {id: used})
MERGE (a)-[:USED]->(u)

UNWIND $generated AS generated
MERGE (a:Activity {id: $id})
MERGE (v:Version {id: generated})
MERGE (v)-[:GENERATED_BY]->(a)

UNWIND $generated AS generated
UNWIND $used AS used
MERGE (v:Version {id: generated})
MERGE (u:Version {id: used})
MERGE (v)-[:DERIVED_FROM]->(u)

UNWIND $attributes AS attribute
MERGE (a:Activity {id: $id})
MERGE (t:Attribute {id: attribute.id})
SET t.name = attribute.name, t.value = attribute.value
MERGE (a)-[:HAS_ATTRIBUTE]->(t)

UNWIND $actors AS actor
MERGE (a:Activity {id: $id})
MERGE (p:Actor {id: actor.id})
SET p.name = actor.name
MERGE (a)-[:ASSOCIATED_WITH]->(p)

UNWIND $actors AS actor
UNWIND actor.generated AS generated
MERGE (p:Actor {id: actor.id})
MERGE (v:Version {id: generated})
MERGE (v)-[:ATTRIBUTED_TO]->(p)

UNWIND $documents AS document
MERGE (a:Activity {id: $id})
MERGE (d:Document {id: document.id})
SET d.kind = document.kind
MERGE (d)-[:DESCRIBES]->(a)
