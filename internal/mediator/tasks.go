package mediator

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"ringfence/internal/act"
	"ringfence/internal/act/strictjson"
)

// A call that a server turns into a task is answered twice: at once with a handle, and
// with its result when the client asks for it. Its ticket is finished with the result. The
// client knows the task by an id of ours, which nobody else can use; what the server says
// of it reaches the client as checked words and numbers or through the Decider.

// Bounds of tasks.
const (
	maxTasks     = 1024 // of all clients
	maxTasksEach = 128  // of those that a transport knows by one name
	maxTaskID    = 512  // bytes of the id that a server gives
)

// The eras have different tasks, and one is not made into the other. In sessions a client
// asks for a task, and the server must make one, whose result it holds back until it is
// there; of requests the server makes one as it likes, and the state carries the result. A
// call for a task at a server of requests is refused before it is sent, and a server of
// sessions cannot make one for a client of requests.

// offersTasks is the member of our capabilities that says there are tasks.
var offersTasks = map[eras]string{
	inSessions: `,"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}`,
	inRequests: `,"extensions":{"` + extTasks + `":{}}`,
}

// tasks reports whether the newest incarnation of the server has the tasks of an era.
func (s *server) tasks(era eras) bool {
	s.mu.Lock()
	requests := slices.Contains(requestVersions, s.offer.protocol)
	s.mu.Unlock()
	if requests != (era == inRequests) {
		return false
	}
	if requests {
		return s.has("/extensions/" + strictjson.Escape(extTasks))
	}
	return s.has("/tasks/requests/tools/call")
}

// stateless reports whether the server is spoken to in the era of requests.
func (l *link) stateless() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.alone != nil
}

// extTasks is the extension of the era of requests that has tasks.
const extTasks = "io.modelcontextprotocol/tasks"

// A task is one that a server has made of a call.
type task struct {
	id     string // that the client knows
	theirs []byte // that the server knows, a JSON string
	who    string
	f      *front // of a session; nil in the era of requests
	s      *server
	link   *link

	// Guarded by Mediator.mu.
	state  []byte                // members of the newest known state, without the id
	ticket *act.Ticket           // of the call; nil once it is finished
	given  *[sha256.Size]byte    // of the outcome that it was finished with, if the client got all of it
	asked  map[string]act.Ticket // what it was granted to ask, and has no response to
	seen   map[string][]byte     // what it was granted to ask at all, as the client was shown it
}

// isTask reports whether body is a handle instead of a result.
func (c *call) isTask(body []byte) bool {
	switch stateless := c.at.link.stateless(); {
	case !c.tool:
		return false
	case c.f.passes(c.m) && (!stateless || !c.f.knowsTasks(c.m)), !c.f.passes(c.m) && !c.task:
		return false
	case !c.f.passes(c.m):
		_, ok, err := strictjson.Find(body, "/task/taskId")
		return err == nil && ok
	}
	v, ok, err := strictjson.Find(body, "/resultType")
	text, terr := v.Text()
	return err == nil && ok && terr == nil && text == "task"
}

// created keeps the task that a server made of an allowed call, and returns what the client
// reads of it. The ticket stays open.
func (c *call) created(ctx context.Context, t act.Ticket, body []byte) []byte {
	object := strictjson.Value{Raw: body}
	if !c.f.passes(c.m) {
		object, _, _ = strictjson.Find(body, "/task")
	}
	theirs, _, err := strictjson.Find(object.Raw, "/taskId")
	if _, terr := theirs.Text(); terr != nil || len(theirs.Raw) > maxTaskID {
		err = errors.New("the task that the server made has no usable id")
	}
	k := &task{
		id: rand.Text(), theirs: slices.Clone(theirs.Raw), who: c.f.who, s: c.s, link: c.at.link, state: stateOf(object.Raw), ticket: &t,
		asked: map[string]act.Ticket{}, seen: map[string][]byte{},
	}
	if !c.f.passes(c.m) {
		k.f = c.f
	}
	if err == nil {
		err = c.f.m.keepTask(k)
	}
	if err != nil {
		_, _ = c.f.m.finish(ctx, t, act.Outcome{Error: err.Error()}) // it is logged
		return c.nothing(codeUnavailable, t, err.Error())
	}
	if k.f != nil {
		return response(c.m.id(), "result", append(append([]byte(`{"task":`), k.public()...), '}'))
	}
	return response(c.m.id(), "result", append([]byte(`{"resultType":"task",`), k.public()[1:]...))
}

// statuses of tasks, in both eras; those behind the second are the last ones.
var statuses = []string{"working", "input_required", "completed", "failed", "cancelled"}

// stateOf returns the members of a task that are one of few words, a time or a number.
func stateOf(object []byte) []byte {
	members, err := strictjson.Members(object, strictjson.Limits{Depth: resultDepth})
	if err != nil {
		return []byte(`"status":"working"`)
	}
	var b []byte
	for _, m := range members {
		raw := object[m.Start:m.End]
		text, _ := strictjson.Text(raw)
		good := false
		switch m.Name {
		case "status":
			good = slices.Contains(statuses, text)
		case "createdAt", "lastUpdatedAt":
			_, terr := time.Parse(time.RFC3339, text)
			good = terr == nil
		case "ttl", "pollInterval", "ttlMs", "pollIntervalMs":
			good = isNumber(raw) || string(raw) == "null"
		}
		if good {
			b = append(append(append(append(b, ','), quote(m.Name)...), ':'), raw...)
		}
	}
	return bytes.TrimPrefix(b, []byte{','})
}

// public is the object that a client may see of k without any decision.
func (k *task) public() []byte {
	b := append([]byte(`{"taskId":`), quote(k.id)...)
	if len(k.state) > 0 {
		b = append(append(b, ','), k.state...)
	}
	return append(b, '}')
}

// errSameTask says that a server gave two tasks one id.
var errSameTask = errors.New("the server gave the task the id of another")

func (m *Mediator) keepTask(k *task) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	each := 0
	for id, other := range m.tasks {
		if other.ticket == nil && other.who == k.who && len(m.tasks) >= maxTasks/2 {
			delete(m.tasks, id) // its result has been fetched
			continue
		}
		if other.who == k.who {
			each++
		}
		if other.link == k.link && bytes.Equal(other.theirs, k.theirs) {
			return errSameTask // whose it is would not be known
		}
	}
	if len(m.tasks) >= maxTasks || each >= maxTasksEach {
		return errors.New("too many tasks at once")
	}
	if m.tasks == nil {
		m.tasks = map[string]*task{}
	}
	m.tasks[k.id] = k
	return nil
}

// taskOf returns the task of f with that id, nil if it has none.
func (f *front) taskOf(id string) *task {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	k := f.m.tasks[id]
	if k == nil || k.who != f.who || k.f != nil && k.f != f {
		return nil
	}
	return k
}

// errGiven says that a task has ended in another way before.
var errGiven = errors.New("what came of the task was settled before, and this is not the same")

// settle finishes the ticket of the call that became k, once, and returns what may be seen
// of its outcome. Later only the same outcome is, and only if nothing of it was withheld.
func (m *Mediator) settle(ctx context.Context, k *task, o act.Outcome) ([]byte, error) {
	m.mu.Lock()
	t, given := k.ticket, k.given
	k.ticket = nil
	m.mu.Unlock()
	if t == nil {
		if len(o.Body) > 0 && (given == nil || *given != sha256.Sum256(o.Body)) {
			return nil, errGiven
		}
		return o.Body, nil
	}
	r, err := m.finish(ctx, *t, o)
	switch {
	case err != nil:
		return nil, errWithheld
	case len(o.Body) > 0 && len(r.Body) == 0:
		return nil, errors.New(orElse(r.Note, "the result is withheld"))
	case len(o.Body) > 0 && bytes.Equal(o.Body, r.Body):
		sum := sha256.Sum256(o.Body)
		m.mu.Lock()
		k.given = &sum
		m.mu.Unlock()
	}
	return withNote(r.Body, r.Note), nil
}

// forgetTasks ends the tasks of f, all of them if it is nil.
func (m *Mediator) forgetTasks(f *front) {
	m.mu.Lock()
	var ended []*task
	for id, k := range m.tasks {
		if f == nil || k.f == f {
			delete(m.tasks, id)
			ended = append(ended, k)
		}
	}
	m.mu.Unlock()
	for _, k := range ended {
		_, _ = m.settle(m.ctx, k, act.Outcome{Error: "nobody fetched the result of its task"})
		m.drop(&passed{tickets: k.asked}, errGone)
	}
}

// task answers a request about tasks.
func (f *front) task(ctx context.Context, m message, row method) parcel {
	if row.place == placeHere {
		return parcel{line: response(m.id(), "result", f.tasks())}
	}
	p, err := readParams(m, row)
	var id string
	if err == nil {
		id, err = p.text(m, "taskId")
	}
	if err != nil {
		return parcel{line: fault(m.id(), codeParams, "refused: "+err.Error())}
	}
	if f.passes(m) && !f.knowsTasks(m) {
		return parcel{line: response(m.id(), "error", faultBody(codeIncapable, "the client does not offer "+extTasks,
			[]byte(`{"requiredCapabilities":{"extensions":{"`+extTasks+`":{}}}}`)))}
	}
	k := f.taskOf(id)
	if k == nil || (k.f == nil) != f.passes(m) {
		return parcel{line: fault(m.id(), codeParams, "there is no task of this id")}
	}
	c := &call{f: f, m: m, s: k.s, name: k.s.cfg.Name + "." + row.name, args: append(append([]byte(`{"taskId":`), quote(k.id)...), '}')}
	params := append(append([]byte(`{"taskId":`), k.theirs...), '}')
	if row.name == "tasks/update" {
		responses, err := f.m.responses(ctx, k, p.member("inputResponses"), m)
		if err != nil {
			return parcel{line: fault(m.id(), codeParams, "refused: "+err.Error())}
		}
		params = append(append(append(params[:len(params)-1], `,"inputResponses":`...), responses...), '}')
	}
	c.build = func(id int64, _ []byte, _ bool) ([]byte, error) {
		if c.at.link != k.link {
			return nil, errors.New("the server that had it has ended since")
		}
		return ownRequest(id, row.name, params), nil
	}
	c.seen = func(ctx context.Context, _ act.Ticket, body []byte) ([]byte, error) { return c.aboutTask(ctx, k, body) }
	line := c.answer(ctx)
	return parcel{line, c.free}
}

// codeIncapable is MissingRequiredClientCapability of 2026-07-28.
const codeIncapable = -32021

// knowsTasks reports whether the client of m said that it has the extension.
func (f *front) knowsTasks(m message) bool {
	_, ok, err := strictjson.Find(f.offers(m), "/extensions/"+strictjson.Escape(extTasks))
	return err == nil && ok
}

// tasks is the list of the tasks of a session.
func (f *front) tasks() []byte {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	var ids []string
	for id, k := range f.m.tasks {
		if k.f == f {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	b := []byte(`{"tasks":[`)
	for i, id := range ids {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, f.m.tasks[id].public()...)
	}
	return append(b, "]}"...)
}

// responses returns what the server may have of the client's responses to what k asked.
func (m *Mediator) responses(ctx context.Context, k *task, given *param, req message) ([]byte, error) {
	if given == nil {
		return nil, errors.New("inputResponses are missing")
	}
	m.mu.Lock()
	kept := &passed{tickets: k.asked}
	k.asked = map[string]act.Ticket{}
	m.mu.Unlock()
	out, err := m.replies(ctx, kept, given.at.of(req.raw))
	m.mu.Lock()
	maps.Copy(k.asked, kept.tickets) // what is not answered yet
	m.mu.Unlock()
	return out, err
}

// renameTask puts our id in the place of that of a server.
func renameTask(body []byte, pointer, id string) ([]byte, error) {
	v, ok, err := strictjson.Find(body, pointer)
	if err != nil || !ok {
		return body, err
	}
	return strictjson.Splice(body, []strictjson.Edit{{Start: v.Start, End: v.End, New: quote(id)}})
}

// taskChanged tells the session that made it, and nobody else, what a task of the
// incarnation l is now.
func (s *server) taskChanged(l *link, m message) {
	params := m.params.of(m.raw)
	theirs, ok, err := strictjson.Find(params, "/taskId")
	if err != nil || !ok {
		return
	}
	s.m.mu.Lock()
	var told *front
	var line []byte
	for _, k := range s.m.tasks {
		if k.link == l && k.f != nil && bytes.Equal(k.theirs, theirs.Raw) {
			k.state = stateOf(params)
			told, line = k.f, notification("notifications/tasks/status", k.public())
		}
	}
	s.m.mu.Unlock()
	if told != nil {
		told.out.Tell(line)
		return
	}
	s.o.Log.Debug("a task that nobody made", slog.String("server", s.cfg.Name))
}
