// Usage: node cedar.cjs CASES
//
// Answers each question in CASES with Cedar itself and prints how many there were, how
// many were allowed, and how many answers differ from those in the file. Some thousand,
// with both answers, or the exit status is 1.
const { createReadStream } = require('fs');
const { createInterface } = require('readline');
const cedar = require('@cedar-policy/cedar-wasm/nodejs');

(async () => {
  let all = 0, allowed = 0, differ = 0;
  for await (const line of createInterface({ input: createReadStream(process.argv[2]) })) {
    const c = JSON.parse(line);
    const r = cedar.isAuthorized({
      principal: c.principal, action: c.action, resource: c.resource, context: c.context,
      policies: { staticPolicies: c.policies }, entities: c.entities, validateRequest: false,
    });
    all++;
    const allow = r.type === 'success' && r.response.decision === 'allow';
    const errors = r.type !== 'success' || r.response.diagnostics.errors.length > 0;
    if (allow) allowed++;
    if (allow !== c.allow || errors !== c.errors) {
      if (differ++ < 3) console.log(line, JSON.stringify(r));
    }
  }
  console.log(`Cedar ${cedar.getCedarVersion()}: ${all} questions, ${allowed} allowed, differ ${differ}`);
  process.exit(all > 2000 && allowed > 200 && all > allowed + 200 && differ === 0 ? 0 : 1);
})();
