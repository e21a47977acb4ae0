package constitution

import (
	"ringfence/internal/policy"
)

// modal words, by what they make of a sentence.
var (
	mayFrames = table(`
is|are fine|ok|okay|acceptable|safe to
may|can|could
may|can|could freely|always|also
must|should|shall may-be
`)
	onlyFrames = table(`
may|can|must|should only
`)
	neverFrames = table(`
may|can|must|should|shall|could|will|would not|never
may|can|must|should|shall|could|will|would not|never ever|directly|automatically
must|should|shall not|never may-be
never
do|does not
do|does not ever
must|should refuse|decline to
is|are not|never allowed|permitted|authorized|free|able|supposed|fine|ok|okay|acceptable to
is|are strictly? forbidden|prohibited|banned|barred|prevented|kept from
is|are strictly? forbidden to
must|should|shall avoid
`)
	askFrames = table(`
must|should|shall|will? always? first? ask|asks|consult <who>? first? before
must|should|shall|will? always? first? ask|asks <who>? for <approval> first? before|to|for|prior_to
must|should|shall|will? always? first? ask|asks for <approval> from <who> before|to|for|prior_to
must|should|shall|will? always? first? ask|asks <approval> before|to|for|prior_to
must|should|shall|will? always? first? check|confirm|verify|clear|discuss with <who> first? before
must|should|shall|will? always? first? check|confirm first? before
must|should|shall|will? always? first? get|gets|obtain|obtains|receive|receives|seek|seeks|request|requests|have|wait_for|acquire|secure <approval> first? before|for|to|prior_to
must|should|shall|will? always? first? need|needs|require|requires <approval> first? before|to|for|prior_to
`)
	needFrames = table(`
need|needs|require|requires <approval> to|for|before
must|should have <approval> to|for|before
<approval> is|are required|needed|necessary|mandatory for|before|to
`)
	freeFrames = table(`
do|does not must ask|check <who>? first? before|for|to
need not ask <who>? first? before|for|to
do|does not need|require <approval> to|for|before
no <approval> is|are? needed|required|necessary to|for|before
no must ask <who>? first? before|for|to
there is no must|need ask <who>? first? before|for|to
no need to? ask <who>? first? before|for|to
`)
	approveFrames = table(`
<who> must|should|shall always? first? approve|confirm|authorize|authorise|ok|allow
<who> must|should|shall always? first? sign-off on
<who> must|should|shall always? first? agree to
<who> must|should|shall always? first? be asked before
`)
	allowFrames = table(`
allow|permit
allow|permit|let the|an|any|all? agent|agents|it|you|them to?
`)
	denyFrames = table(`
forbid|deny|block|prohibit|disallow|refuse|reject|ban
forbid|prohibit|block|ban|prevent|stop|keep the|an|any|all? agent|agents|it|you|them from|to?
no
no more
`)
)

// Predicates follow what they speak about: "pushing to main is forbidden".
var (
	mayPredicates = table(`
is|are also|always|generally? allowed|permitted|fine|ok|okay|free|acceptable|authorized|granted|pre-approved
is|are allowed|permitted|ok|fine freely
need|needs|require|requires no <approval>
do|does not need|require <approval>
do|does not must be approved|confirmed
: allowed|yes|ok|okay|fine|free|permitted
— allowed|yes|ok|okay|fine|free|permitted
`)
	neverPredicates = table(`
is|are always|strictly|explicitly|absolutely|completely? forbidden|prohibited|disallowed|banned|off-limits|denied|blocked|unacceptable
is|are strictly|absolutely? not|never allowed|permitted|ok|okay|acceptable|fine
must|may|can|should not|never happen|occur|be_allowed
must not|never may-be
: never|no|forbidden|denied|prohibited|not_allowed|off-limits
— never|no|forbidden|denied|prohibited|not_allowed|off-limits
`)
	needPredicates = table(`
need|needs|require|requires|take|takes <approval>
is|are subject to <approval>
: needs|requires <approval>
— needs|requires <approval>
: approval
`)
	askPredicates = table(`
always need|needs|require|requires <approval>
must|should|shall always? first? have|get|receive <approval>
must|should|shall always? first? be approved|confirmed|authorized|cleared|signed-off
must|should|shall always? first? be approved|confirmed|authorized|cleared by|with <who>
must|should|shall always? first? be approved|confirmed|authorized|cleared before they|it|this are|is|get|gets sent|made|pushed|merged|run|deleted|executed|installed|published|used|created|committed
must|should|shall always? first? be approved|confirmed|authorized|cleared by|with <who> before they|it|this are|is|get|gets sent|made|pushed|merged|run|deleted|executed|installed|published|used|created|committed
: ask <who>? first?
— ask <who>? first?
: always_ask
`)
	onlyPredicates = table(`
is|are only allowed|permitted|ok|okay|fine
`)
	readOnlyPredicates = table(`
is|are|stays|stay read-only
must be|stay|remain read-only
`)
	limitPredicates = table(`
is|are strictly? limited|restricted|confined to
`)
	stayFrames = table(`
must|should|always? stay|remain|keep|work only? in|inside|within
must|should|may|can|do? never|not leave
`)
	passives = table(`
may|can|could also|always|freely? be also|always|freely?
must|should be
`)
	passiveNever = table(`
may|can|must|should|shall|could|will not|never ever? be ever?
`)
	passiveOnly = table(`
may|can|must|should|shall only be
`)
)

const agentWords = ` agent agents assistant assistants ai bot model claude codex it you they we everyone everybody subagents sub-agents session
sessions llm robot program user's-agent `

var askTails = table(`
must|should|shall|will? always? first? ask|asks <who>? first?
must|should|shall|will? always? first? ask|asks <who>? for <approval> first?
must|should|shall|will? always? first? get|obtain|receive|seek|request <approval> first?
must|should|shall|will? always? first? check|confirm with <who> first?
`)

type predicateFrame struct {
	phrases  func() []phrase
	modality policy.Modality
	limits   bool // what follows is all that is allowed
}
