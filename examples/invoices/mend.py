"""A maintainer: reads what went wrong on standard input, writes a better script to standard output.

A real one would ask a model; this one knows one mistake.
"""

import json, sys

evidence = json.load(sys.stdin)
once, either = r"/^Total: (\d+\.\d\d) EUR$/m", r"/^Total: (?:EUR )?(\d+\.\d\d)(?: EUR)?$/m"
failure, script = evidence["failure"], evidence["script"]
if once not in script:
    sys.exit(f"mend.py does not know what to do about {failure['message']}")
json.dump({
    "script": script.replace(once, either),
    "impact": "safe",
    "explanation": "some suppliers write EUR before the amount",
    "cost": 0,
}, sys.stdout)
