package seatbelt

import (
	"bytes"
	"debug/macho"
	"encoding/binary"
	"testing"
)

// program returns a Mach-O file of one architecture that is linked with library.
func program(library string) []byte {
	name := append([]byte(library), make([]byte, 8-len(library)%8)...)
	le := binary.LittleEndian
	b := le.AppendUint32(nil, macho.Magic64)
	for _, v := range []uint32{uint32(macho.CpuArm64), 0, uint32(macho.TypeExec), 1, uint32(24 + len(name)), 0, 0} {
		b = le.AppendUint32(b, v)
	}
	for _, v := range []uint32{uint32(macho.LoadCmdDylib), uint32(24 + len(name)), 24, 0, 0, 0} {
		b = le.AppendUint32(b, v)
	}
	return append(b, name...)
}

// fat wraps a file of one architecture as those of the system are.
func fat(thin []byte) []byte {
	be := binary.BigEndian
	b := be.AppendUint32(nil, macho.MagicFat)
	for _, v := range []uint32{1, uint32(macho.CpuArm64), 0, 32, uint32(len(thin)), 2} {
		b = be.AppendUint32(b, v)
	}
	return append(append(b, make([]byte, 32-len(b))...), thin...)
}

func TestShim(t *testing.T) {
	stub := program(shimLibrary)
	for _, c := range []struct {
		file    string
		content []byte
		want    bool
	}{
		{"/usr/bin/git", stub, true},
		{"/usr/bin/git", fat(stub), true},
		{"/usr/bin/true", program("/usr/lib/libSystem.B.dylib"), false},
		{"/usr/bin/true", fat(program("/usr/lib/libSystem.B.dylib")), false},
		{"/opt/homebrew/bin/git", stub, false},
		{"/usr/bin/xcode-select", []byte("#!/bin/sh\n"), false},
		{"/usr/bin/short", stub[:20], false},
		{"/usr/bin/empty", nil, false},
	} {
		if got := Shim(c.file, bytes.NewReader(c.content)); got != c.want {
			t.Errorf("%s, %d bytes: %v", c.file, len(c.content), got)
		}
	}
}

func TestInterpreter(t *testing.T) {
	for _, c := range [][3]string{
		{"#!/bin/sh\necho", "/bin/sh", ""},
		{"#! /bin/sh -e\n", "/bin/sh", ""},
		{"#!/usr/bin/env python3\n", "/usr/bin/env", "python3"},
		{"#!/usr/bin/env -S A=1 node --x\n", "/usr/bin/env", "node"},
		{"#!/usr/bin/env", "/usr/bin/env", ""},
		{"#!relative\n", "", ""},
		{"#!\n", "", ""},
		{"\xcf\xfa\xed\xfe", "", ""},
	} {
		if p, n := Interpreter([]byte(c[0])); p != c[1] || n != c[2] {
			t.Errorf("%q: %q, %q", c[0], p, n)
		}
	}
}
