package daemon

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"ringfence/internal/constitution"
	"ringfence/internal/daemon/api"
	"ringfence/internal/desk/notice"
	"ringfence/internal/sys/keychain"
	"ringfence/internal/sys/paths"
)

// consenting is a bundle by which a person is asked about each deletion.
func (f *fixture) consenting() string {
	f.t.Helper()
	key, err := keychain.LoadOrCreate(PolicyKey(f.home))
	if err != nil {
		f.t.Fatal(err)
	}
	c, err := constitution.Compile(constitution.Source{Name: "c.md", Text: []byte("The agent may delete any file in the workspace with approval.\n")}, constitution.Options{Granting: true})
	if err != nil {
		f.t.Fatal(err)
	}
	dir := filepath.Join(f.home, "asking")
	if err := constitution.Write(dir, c, "test", key); err != nil {
		f.t.Fatal(err)
	}
	return dir
}

func (f *fixture) configured(settings map[string]any) {
	f.t.Helper()
	text, err := json.Marshal(settings)
	if err == nil {
		err = os.WriteFile(paths.ConfigFile(f.home), text, 0o600)
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

// A post is a request that a listener got.
type post struct {
	body, at, signature string
}

// TestNotices (N1): a program and a listener at the other end of TLS are told that something
// waits, by a signed text that has nothing of what is asked.
func TestNotices(t *testing.T) {
	f := newFixture(t)
	got := make(chan post, 8)
	at := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		got <- post{string(body), r.Header.Get(notice.HeaderTime), r.Header.Get(notice.HeaderSignature)}
	}))
	der, own := ownCertificate(t)
	at.TLS = &tls.Config{Certificates: []tls.Certificate{own}}
	at.StartTLS()
	defer at.Close()
	ca, told, program := filepath.Join(f.home, "ca.pem"), filepath.Join(f.home, "told"), filepath.Join(f.home, "tells")
	for file, text := range map[string]string{
		ca:      string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		program: "#!/bin/sh\nprintf '%s|%s' \"$1\" \"$2\" >'" + told + ".new'; mv '" + told + ".new' '" + told + "'\n",
	} {
		if err := os.WriteFile(file, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	f.configured(map[string]any{
		"approvals": map[string]any{"notify": []string{program, "first $(id)"}, "webhook": strings.Replace(at.URL, "127.0.0.1", "localhost", 1) + "/hook"},
		"network":   map[string]any{"private": []string{"127.0.0.0/8", "::1/128"}, "ca": []string{ca}},
	})
	f.start(Options{})
	client := f.client()
	dir := f.consenting()
	deletes := f.deletes(client, dir)
	text := awaitFile(t, told)
	if !strings.HasPrefix(text, "first $(id)|default/test, session ") || !strings.HasSuffix(text, " asks for your approval (delete)") || strings.Contains(text, f.work) {
		t.Errorf("the program was told %q", text)
	}
	f.posted(t, <-got)
	qs, err := client.Questions(context.Background())
	if err != nil || len(qs) != 1 {
		t.Fatalf("%v, %v", qs, err)
	}
	if err := client.Answer(context.Background(), qs[0].ID, api.Choice{}); err != nil {
		t.Fatal(err)
	}
	<-deletes
}

// ownCertificate is one of this machine by its name, that signs itself.
func ownCertificate(t *testing.T) ([]byte, tls.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return der, tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func (f *fixture) posted(t *testing.T, p post) {
	t.Helper()
	key, err := noticeKey(paths.NoticeKey(f.home))
	if err != nil {
		t.Fatal(err)
	}
	at, err := strconv.ParseInt(p.at, 10, 64)
	if err != nil || p.signature != notice.Sign(key, at, []byte(p.body)) {
		t.Errorf("%v, signature %s of %s", err, p.signature, p.body)
	}
	var members map[string]any
	if err := json.Unmarshal([]byte(p.body), &members); err != nil || len(members) != 5 || members["kind"] != "delete" || members["agent"] != "default/test" || strings.Contains(p.body, f.work) {
		t.Errorf("%v, it was told %s", err, p.body)
	}
}

func awaitFile(t *testing.T, name string) string {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		if text, err := os.ReadFile(name); err == nil {
			return string(text)
		}
		select {
		case <-t.Context().Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
	t.Fatalf("there is no %s", name)
	return ""
}
