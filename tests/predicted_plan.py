"""A plan with its limits in predicted mode: predicted_plan.py IN OUT RECALL INPUTS EXEMPT
INPUTS: ffn, block, residual or none, one for all layers or a comma-separated list that repeats; EXEMPT likewise (neurons)."""
import json
import sys

path, out, recall, inputs, exempt = sys.argv[1:]
plan = json.load(open(path))
for limit in plan["decisions"]["limits"]:
    n = len(limit["batches"][0]["cold"])
    limit["mode"] = "predicted"
    limit["recall"] = float(recall)
    names, counts = inputs.split(","), [int(x) for x in exempt.split(",")]
    limit["predictors"] = [names[i % len(names)] for i in range(n)]
    limit["exempt"] = [counts[i % len(counts)] for i in range(n)]
json.dump(plan, open(out, "w"))
