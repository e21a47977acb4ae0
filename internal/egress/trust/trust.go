// Package trust is what programs in a box need to know of the way out: whom they verify
// servers by, and where the proxy is, said in as many ways as there are kinds of programs.
//
// It makes bytes and words, and places nothing: that is for who builds the box. It is not
// where certificates are made, and what it says is of use to programs, not a boundary: one
// that does not listen reaches nothing more.
//
// Invariants:
//
//	T1  A bundle begins with the roots of the machine as they are; ours come last.
//	T2  Bytes of the machine that are no certificates never keep ours out, and are not in
//	    the store of Java.
package trust

import (
	"crypto/sha1"
	"encoding/binary"
	"encoding/pem"
	"fmt"
	"time"
	"unicode/utf16"
)

// Where the two files are in a box.
const (
	BundleFile = "/run/ringfence/ca.pem"
	StoreFile  = "/run/ringfence/ca.jks"
)

// MaxBundle is how many bytes of roots of a machine are read; Debian's have 0.2 MB.
const MaxBundle = 8 << 20

// UsualPlaces are where programs that are told nothing look for a bundle: OpenSSL and GnuTLS
// as Debian, Fedora, SUSE and Alpine have them, and what these link to.
func UsualPlaces() []string {
	return []string{
		"/etc/ssl/certs/ca-certificates.crt",                // Debian, Arch, Gentoo
		"/etc/pki/tls/certs/ca-bundle.crt",                  // Fedora
		"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", // RHEL
		"/etc/pki/tls/cacert.pem",                           // older ones of it
		"/etc/ssl/ca-bundle.pem",                            // SUSE
		"/etc/ssl/cert.pem",                                 // Alpine, BSD
		"/etc/ca-certificates/extracted/tls-ca-bundle.pem",  // Arch
	}
}

// UsualStores are where Java looks for one, as distributions link it.
func UsualStores() []string {
	return []string{
		"/etc/ssl/certs/java/cacerts",              // Debian
		"/etc/pki/ca-trust/extracted/java/cacerts", // Fedora
	}
}

// Bundle returns PEM that holds system, which is PEM, and then own.
func Bundle(system []byte, own []byte) []byte {
	all := make([]byte, 0, len(system)+len(own)+1)
	all = append(all, system...)
	if len(all) > 0 && all[len(all)-1] != '\n' {
		all = append(all, '\n')
	}
	return append(all, own...)
}

// The format of a JKS file, as sun.security.provider.JavaKeyStore writes it.
const (
	jksMagic   = 0xfeedfeed
	jksVersion = 2
	jksTrusted = 2
	jksSalt    = "Mighty Aphrodite"
	// StorePassword opens the store. It is the one that everybody uses: the file holds no
	// secret.
	StorePassword = "changeit"
)

// Store returns the certificates of bundle as a trust store of Java (JKS), which all its
// versions read. now is the time of its entries.
func Store(bundle []byte, now time.Time) []byte {
	var entries []byte
	count := uint32(0)
	for {
		var block *pem.Block
		if block, bundle = pem.Decode(bundle); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		count++
		entries = binary.BigEndian.AppendUint32(entries, jksTrusted)
		entries = appendText(entries, fmt.Sprintf("root-%d", count))
		entries = binary.BigEndian.AppendUint64(entries, uint64(now.UnixMilli()))
		entries = appendText(entries, "X.509")
		entries = binary.BigEndian.AppendUint32(entries, uint32(len(block.Bytes)))
		entries = append(entries, block.Bytes...)
	}
	file := binary.BigEndian.AppendUint32(nil, jksMagic)
	file = binary.BigEndian.AppendUint32(file, jksVersion)
	file = binary.BigEndian.AppendUint32(file, count)
	file = append(file, entries...)
	sum := sha1.New()
	for _, u := range utf16.Encode([]rune(StorePassword)) {
		sum.Write([]byte{byte(u >> 8), byte(u)})
	}
	sum.Write([]byte(jksSalt))
	sum.Write(file)
	return sum.Sum(file)
}

// appendText appends a text as java.io.DataOutput.writeUTF does; it is ASCII.
func appendText(b []byte, text string) []byte {
	return append(binary.BigEndian.AppendUint16(b, uint16(len(text))), text...)
}
