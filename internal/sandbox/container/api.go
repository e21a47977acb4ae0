package container

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"ringfence/internal/sys/ipc"
)

// The engine's HTTP API, of Docker and as Podman imitates it, as far as it is used
// here: https://docs.docker.com/reference/api/engine/version/v1.41/. A connection
// serves one call: on a Unix socket another costs nothing worth keeping one for.

// The versions of the API, 1.n, that this package was written to. Later ones may
// mean something else by the same members.
const (
	oldestAPI = 41 // Docker 20.10: the first with cgroup namespaces
	newestAPI = 51
)

// Bounds of what an engine may answer (K6).
const (
	maxHead    = 64 << 10
	maxAnswer  = 8 << 20
	maxMessage = 4 << 10
	callTime   = 30 * time.Second     // of a call, where its context has no deadline
	waitTime   = 365 * 24 * time.Hour // of waiting for a container
)

// A client speaks to the engine at one socket.
type client struct {
	socket  string
	version string // "1.41"; "" before it is known
}

// An apiError is an answer that is no success.
type apiError struct {
	status  int
	message string
}

func (e *apiError) Error() string { return fmt.Sprintf("the engine says %q (%d)", e.message, e.status) }

// answered reports whether err is an answer with one of the statuses.
func answered(err error, statuses ...int) bool {
	var e *apiError
	if !errors.As(err, &e) {
		return false
	}
	return slices.Contains(statuses, e.status)
}

// call makes one call: in, if not nil, is sent as JSON; out, if not nil, receives
// the JSON of the answer.
func (c *client) call(ctx context.Context, method, path string, in, out any) error {
	resp, conn, err := c.open(ctx, method, path, in, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close() // after the connection: it would read an answer to its end
	defer shut(conn)
	stop := bound(ctx, conn)
	defer stop()
	if out == nil {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err == nil && len(body) > maxAnswer {
		err = fmt.Errorf("the answer exceeds %d bytes", maxAnswer)
	}
	if err == nil {
		err = json.Unmarshal(body, out)
	}
	if err != nil {
		return c.failed(ctx, method, path, err)
	}
	return nil
}

// A conn is a connection whose first bytes may have been read ahead.
type conn struct {
	*net.UnixConn
	ahead *bufio.Reader
}

func (c conn) Read(p []byte) (int, error) { return c.ahead.Read(p) }

// shut closes what nothing more is expected of.
func shut(c io.Closer) { c.Close() }

// open sends a request and reads the head of the answer, which is a success. The
// caller closes body and connection.
func (c *client) open(ctx context.Context, method, path string, in any, header http.Header) (*http.Response, conn, error) {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return nil, conn{}, fmt.Errorf("asking the engine: %w", err)
		}
	}
	return c.send(ctx, method, path, bytes.NewReader(body), header)
}

// send is open for a body that may be long.
func (c *client) send(ctx context.Context, method, path string, body io.Reader, header http.Header) (*http.Response, conn, error) {
	if c.version != "" {
		path = "/v" + c.version + path
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://engine"+path, body)
	if err != nil {
		return nil, conn{}, fmt.Errorf("asking the engine: %w", err)
	}
	req.Header.Set("User-Agent", "ringfence")
	req.Header.Set("Content-Type", "application/json")
	req.Close = header == nil
	maps.Copy(req.Header, header)
	raw, err := ipc.DialService(ctx, c.socket)
	if err != nil {
		return nil, conn{}, c.failed(ctx, method, path, err)
	}
	head := &io.LimitedReader{R: raw, N: maxHead}
	cn := conn{raw, bufio.NewReader(head)}
	stop := bound(ctx, raw)
	defer stop()
	var resp *http.Response
	if err = req.Write(raw); err == nil {
		resp, err = http.ReadResponse(cn.ahead, req)
	}
	if err == nil && resp.StatusCode >= 300 && resp.StatusCode != http.StatusNotModified {
		err = refusal(resp)
		shut(raw)
		resp.Body.Close()
	}
	if err != nil {
		shut(raw)
		return nil, conn{}, c.failed(ctx, method, path, err)
	}
	head.N = math.MaxInt64
	return resp, cn, nil
}

func refusal(resp *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxMessage)) // what came of it will do
	var said struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(text, &said) != nil || said.Message == "" {
		said.Message = strings.TrimSpace(string(text))
	}
	return &apiError{resp.StatusCode, said.Message}
}

// bound makes conn fail when ctx ends, or after callTime if ctx never does. The
// function that it returns lifts that.
func bound(ctx context.Context, conn net.Conn) (lift func()) {
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	} else {
		_ = conn.SetDeadline(time.Now().Add(callTime))
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	return func() {
		if stop() {
			_ = conn.SetDeadline(time.Time{})
		}
	}
}

func (c *client) failed(ctx context.Context, method, path string, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	path, _, _ = strings.Cut(path, "?")
	return fmt.Errorf("%s %s of the engine at %s: %w", method, path, c.socket, err)
}

// What follows are the answers, and the members of them that are read.

type infoAnswer struct {
	OperatingSystem string
	OSType          string
	KernelVersion   string
	SecurityOptions []string // "name=seccomp,profile=default", "name=rootless", …
	InitBinary      string
	Rootless        bool // Podman
}

type imageAnswer struct {
	ID          string `json:"Id"`
	RepoDigests []string
	Config      struct {
		Env     []string
		Volumes map[string]struct{}
	}
}

type containerAnswer struct {
	State struct {
		Pid       int
		Running   bool
		ExitCode  int
		OOMKilled bool
		StartedAt time.Time // the zero time if it never was
	}
	HostConfig hostConfig
	Config     struct {
		User            string
		NetworkDisabled bool
	}
}

type listAnswer struct {
	ID     string `json:"Id"`
	Labels map[string]string
}

// createBody is what a container is made from.
type createBody struct {
	Image           string
	Entrypoint      []string
	Cmd             []string
	User            string
	Env             []string
	WorkingDir      string
	Hostname        string
	NetworkDisabled bool
	Labels          map[string]string
	AttachStdin     bool
	AttachStdout    bool
	AttachStderr    bool
	OpenStdin       bool
	StdinOnce       bool
	StopTimeout     int
	HostConfig      hostConfig
}

type hostConfig struct {
	Binds          []string `json:",omitempty"`
	Mounts         []mountBody
	Tmpfs          map[string]string
	NetworkMode    string
	ReadonlyRootfs bool
	CapDrop        []string
	SecurityOpt    []string
	Memory         int64
	MemorySwap     int64
	NanoCPUs       int64 `json:"NanoCpus"`
	PidsLimit      *int64
	IpcMode        string
	CgroupnsMode   string `json:",omitempty"`
	UsernsMode     string `json:",omitempty"`
	LogConfig      struct{ Type string }
	OomScoreAdj    int
	ShmSize        int64
	Ulimits        []ulimit
	Init           *bool
	Privileged     bool
	Sysctls        map[string]string `json:",omitempty"`
}

type ulimit struct {
	Name       string
	Soft, Hard int64
}

type mountBody struct {
	Type        string
	Source      string
	Target      string
	ReadOnly    bool
	BindOptions *bindOptions `json:",omitempty"`
}

type bindOptions struct {
	Propagation  string
	NonRecursive bool
}

// ping returns the head of the answer to the cheapest question there is.
func (c *client) ping(ctx context.Context) (http.Header, error) {
	resp, conn, err := c.open(ctx, http.MethodGet, "/_ping", nil, nil)
	if err != nil {
		return nil, err
	}
	shut(conn)
	resp.Body.Close() // what of it could not be read any more, nobody wants
	return resp.Header, nil
}

// create makes a container and returns the name by which it is spoken of. If the
// answer is lost, the container may have been made all the same, and is removed.
func (c *client) create(ctx context.Context, body createBody) (string, error) {
	name := "ringfence-" + strings.ToLower(rand.Text())
	err := c.call(ctx, http.MethodPost, "/containers/create?name="+name, body, nil)
	var refused *apiError
	if err != nil && !errors.As(err, &refused) {
		err = errors.Join(err, c.removeAnyway(ctx, name))
	}
	return name, err
}

func (c *client) startContainer(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodPost, "/containers/"+id+"/start", nil, nil)
}

func (c *client) inspect(ctx context.Context, id string) (a containerAnswer, err error) {
	return a, c.call(ctx, http.MethodGet, "/containers/"+id+"/json", nil, &a)
}

// wait returns the exit status of a container when it does not run any more.
func (c *client) wait(ctx context.Context, id string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, waitTime)
	defer cancel()
	var ended struct{ StatusCode int }
	err := c.call(ctx, http.MethodPost, "/containers/"+id+"/wait?condition=not-running", nil, &ended)
	return ended.StatusCode, err
}

// signal sends a signal to the first process. A container that does not run is no
// error.
func (c *client) signal(ctx context.Context, id string, number int) error {
	err := c.call(ctx, http.MethodPost, fmt.Sprintf("/containers/%s/kill?signal=%d", id, number), nil, nil)
	if answered(err, http.StatusNotFound, http.StatusConflict) {
		return nil
	}
	return err
}

// How often a removal is tried, because another is under way or the engine is not
// well, and how long between the tries.
const (
	removeTries = 40
	removePause = 50 * time.Millisecond
)

// remove kills a container and removes it with its volumes, and returns when it is
// gone. That it was gone already is no error.
func (c *client) remove(ctx context.Context, id string) error {
	for try := 0; ; try++ {
		err := c.call(ctx, http.MethodDelete, "/containers/"+id+"?force=1&v=1", nil, nil)
		switch {
		case err == nil || answered(err, http.StatusNotFound):
			return nil
		case try == removeTries:
			return fmt.Errorf("removing container %s: %w", id, err)
		}
		select {
		case <-time.After(removePause):
		case <-ctx.Done():
			return fmt.Errorf("removing container %s: %w", id, context.Cause(ctx))
		}
	}
}

// removeTime is how long the removal of a container may take, whatever became of
// the context of the box.
const removeTime = time.Minute

// removeAnyway is remove, also after ctx has ended.
func (c *client) removeAnyway(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTime)
	defer cancel()
	return c.remove(ctx, id)
}

// labelled lists the containers, running or not, that have a label.
func (c *client) labelled(ctx context.Context, label string) (list []listAnswer, err error) {
	filters, err := json.Marshal(map[string][]string{"label": {label}})
	if err != nil {
		return nil, fmt.Errorf("listing containers: %w", err)
	}
	return list, c.call(ctx, http.MethodGet, "/containers/json?all=1&filters="+url.QueryEscape(string(filters)), nil, &list)
}

// attach connects to the streams of a container that was made and not started.
func (c *client) attach(ctx context.Context, id string) (conn, error) {
	header := http.Header{"Connection": {"Upgrade"}, "Upgrade": {"tcp"}}
	_, cn, err := c.open(ctx, http.MethodPost, //nolint:bodyclose // the connection is what there is to close
		"/containers/"+id+"/attach?stream=1&stdin=1&stdout=1&stderr=1", nil, header)
	return cn, err
}

// hasFile reports whether there is something at path in a container.
func (c *client) hasFile(ctx context.Context, id, path string) (bool, error) {
	err := c.call(ctx, http.MethodHead, "/containers/"+id+"/archive?path="+url.QueryEscape(path), nil, nil)
	if answered(err, http.StatusNotFound) {
		return false, nil
	}
	return err == nil, err
}
