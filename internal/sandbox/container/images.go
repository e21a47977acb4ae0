package container

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// An Image is one that the engine has.
type Image struct {
	ID     string // "sha256:…"
	Names  []string
	Labels map[string]string
	Size   int64  // bytes, with what it shares
	Arch   string // as Go names it
}

// imageTime bounds what moves a whole image.
const imageTime = 20 * time.Minute

func imageID(id string) string {
	if id == "" || strings.Contains(id, ":") {
		return id
	}
	return "sha256:" + id // Podman
}

// Image returns the image called name; an error says how it is got if there is none.
func (t *Tier) Image(ctx context.Context, name string) (Image, error) {
	if err := checkImage(name); err != nil {
		return Image{}, err
	}
	e, err := t.connect(ctx)
	if err != nil {
		return Image{}, err
	}
	return e.describe(ctx, name)
}

func (e *engine) describe(ctx context.Context, name string) (Image, error) {
	if _, err := e.image(ctx, name); err != nil {
		return Image{}, err
	}
	var a struct {
		ID           string `json:"Id"`
		RepoTags     []string
		Size         int64
		Architecture string
		Os           string
		Config       struct{ Labels map[string]string }
	}
	if err := e.call(ctx, http.MethodGet, "/images/"+name+"/json", nil, &a); err != nil {
		return Image{}, err
	}
	if a.Os != "linux" {
		return Image{}, fmt.Errorf("the image %s is for %q, not for Linux", name, a.Os)
	}
	return Image{ID: imageID(a.ID), Names: a.RepoTags, Labels: a.Config.Labels, Size: a.Size, Arch: a.Architecture}, nil
}

// Images returns those that have a label, without their architecture.
func (t *Tier) Images(ctx context.Context, label string) ([]Image, error) {
	e, err := t.connect(ctx)
	if err != nil {
		return nil, err
	}
	filters, err := json.Marshal(map[string][]string{"label": {label}})
	if err != nil {
		return nil, fmt.Errorf("listing images: %w", err)
	}
	var list []struct {
		ID       string `json:"Id"`
		RepoTags []string
		Labels   map[string]string
		Size     int64
	}
	if err := e.call(ctx, http.MethodGet, "/images/json?filters="+url.QueryEscape(string(filters)), nil, &list); err != nil {
		return nil, err
	}
	all := make([]Image, 0, len(list))
	for _, i := range list {
		if _, ok := i.Labels[label]; ok { // whatever the engine makes of the filter
			names := slices.DeleteFunc(i.RepoTags, func(n string) bool { return n == "<none>:<none>" })
			all = append(all, Image{ID: imageID(i.ID), Names: names, Labels: i.Labels, Size: i.Size})
		}
	}
	return all, nil
}

// RemoveImage removes the image with that id, and its names. One that a container is made
// of is not removed, which is an error; one that is not there is none.
func (t *Tier) RemoveImage(ctx context.Context, image Image) error {
	e, err := t.connect(ctx)
	if err != nil {
		return err
	}
	for _, n := range image.Names[min(1, len(image.Names)):] { // an id with several names is removed name by name
		if err := e.untag(ctx, n); err != nil {
			return err
		}
	}
	return e.untag(ctx, image.ID)
}

func (e *engine) untag(ctx context.Context, name string) error {
	if err := checkImage(name); err != nil {
		return err
	}
	err := e.call(ctx, http.MethodDelete, "/images/"+name, nil, nil)
	if answered(err, http.StatusNotFound) {
		return nil
	}
	return err
}

// save writes the image with an id to w, as "docker save" has it.
func (c *client) save(ctx context.Context, id string, w io.Writer) error {
	path := "/images/" + id + "/get"
	resp, conn, err := c.open(ctx, http.MethodGet, path, nil, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close() // after the connection: it would read an answer to its end
	defer shut(conn)
	stop := bound(ctx, conn)
	defer stop()
	n, err := io.Copy(w, io.LimitReader(resp.Body, maxImage+1))
	if err == nil && n > maxImage {
		err = fmt.Errorf("the image exceeds %d bytes", int64(maxImage))
	}
	if err != nil {
		return c.failed(ctx, http.MethodGet, path, err)
	}
	return nil
}

// maxImage is how many bytes an image may have that one is derived from.
const maxImage = 16 << 30

// load hands the engine an archive as save writes it.
func (c *client) load(ctx context.Context, archive io.Reader) error {
	const path = "/images/load?quiet=1"
	resp, conn, err := c.send(ctx, http.MethodPost, path, archive, http.Header{"Content-Type": {"application/x-tar"}, "Connection": {"close"}})
	if err != nil {
		return err
	}
	defer resp.Body.Close() // after the connection: it would read an answer to its end
	defer shut(conn)
	stop := bound(ctx, conn)
	defer stop()
	// A stream of messages, of which one can be why it failed.
	for messages := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)); ; {
		var m struct {
			Error       string `json:"error"`
			ErrorDetail struct {
				Message string `json:"message"`
			} `json:"errorDetail"`
		}
		err := messages.Decode(&m)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return c.failed(ctx, http.MethodPost, path, err)
		case m.Error != "" || m.ErrorDetail.Message != "":
			return c.failed(ctx, http.MethodPost, path, fmt.Errorf("the engine says %.300q", m.Error+m.ErrorDetail.Message))
		}
	}
}
