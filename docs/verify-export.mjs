#!/usr/bin/env node
// Verifies exported sessions, as docs/ledger-format.md describes them. It shares
// no code with ringfence and needs nothing but Node 20.
//
//   node verify-export.mjs [--key 'ringfence-pub/v1 ed25519 …']… FILE…
//
// Prints one line of JSON for each file. Exit status: 0 all valid, 1 one is
// invalid, 3 one is incomplete, 2 usage.
import { createHash, createPublicKey, verify as checkSignature } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { pathToFileURL } from 'node:url'

const MAX_BODY = 1 << 20
const MAX_LEAF = MAX_BODY + 1024
const MAX_LINE = MAX_LEAF + 64 * 44 + 64
class Wrong extends Error {
  constructor (reason, index = -1) { super(reason); this.index = index }
}

const sha256 = (...parts) => createHash('sha256').update(Buffer.concat(parts.map(p => Buffer.from(p)))).digest()

// integer reads a whole number from 0 to 2^53-1 in its only spelling, or null.
function integer (text) {
  const n = /^(0|[1-9][0-9]{0,15})$/.test(text) ? Number(text) : NaN
  return n <= Number.MAX_SAFE_INTEGER ? n : null
}

// base64 decodes the standard alphabet with padding, in its only spelling, or null.
function base64 (text) {
  const b = Buffer.from(text, 'base64')
  return b.toString('base64') === text ? b : null
}

// canonical writes a value as RFC 8785 does, within the limits of the format.
function canonical (v, depth) {
  if (v === null || typeof v === 'boolean') return String(v)
  if (typeof v === 'number' && Math.abs(v) <= 2 ** 53) return String(v)
  if (typeof v === 'string' && v.isWellFormed() && !v.includes('\0')) return JSON.stringify(v)
  if (typeof v !== 'object' || depth >= 64) throw new Error('outside the limits')
  if (Array.isArray(v)) return '[' + v.map(e => canonical(e, depth + 1)).join(',') + ']'
  return '{' + Object.keys(v).sort().map(k => canonical(k, depth + 1) + ':' + canonical(v[k], depth + 1)).join(',') + '}'
}

function isCanonicalObject (bytes) {
  try {
    const text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)
    return bytes.length <= MAX_BODY && text[0] === '{' && canonical(JSON.parse(text), 0) === text
  } catch { return false }
}

function isTime (t) {
  const date = new Date(t.slice(0, 23) + 'Z')
  return /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/.test(t) && !isNaN(date) && date.toISOString().slice(0, 23) === t.slice(0, 23)
}

const ENVELOPE = new RegExp('^\\{"body":(.*),"boot":(\\d+),"prev":"([0-9a-f]{64})","seq":(\\d+),"session":"([A-Za-z0-9._-]{1,64})",' +
  '"time":"([^"]*)","type":"([a-z][a-z0-9._-]{0,63})","v":1\\}$', 's')

// decodeLeaf returns the envelope of a leaf, or null if its version is unknown.
function decodeLeaf (raw, index) {
  const bad = new Wrong('not a canonical envelope', index)
  const text = raw.toString('latin1') // one character for each byte
  const version = raw.length <= MAX_LEAF && /,"v":(\d+)\}$/.exec(text)
  if (!version || integer(version[1]) === null) throw bad
  if (version[1] !== '1') return null
  const m = ENVELOPE.exec(text)
  if (!m) throw bad
  const leaf = { boot: integer(m[2]), prev: m[3], seq: integer(m[4]), session: m[5], time: m[6], type: m[7] }
  const body = raw.subarray(8, 8 + m[1].length)
  if (leaf.boot === null || leaf.seq === null || !isTime(leaf.time) || !isCanonicalObject(body)) throw bad
  return leaf
}

// rootFrom computes the root of the RFC 6962 tree over leaves lo..hi-1 from the
// hash of leaf n and its inclusion proof (lowest hash first), or null.
function rootFrom (path, lo, hi, n, leafHash) {
  if (lo + 1 === hi || path.length === 0) return lo + 1 === hi && path.length === 0 ? leafHash : null
  let k = 1
  while (2 * k < hi - lo) k *= 2
  const left = n < lo + k
  const inner = rootFrom(path.slice(0, -1), left ? lo : lo + k, left ? lo + k : hi, n, leafHash)
  return inner && (left ? sha256([1], inner, path.at(-1)) : sha256([1], path.at(-1), inner))
}

// parsePublic decodes the one-line text of a public key, or returns null.
function parsePublic (text) {
  const m = /^ringfence-pub\/v1 ed25519 ([0-9a-f]{16}) ([A-Za-z0-9+/=]+)$/.exec(text)
  const pub = m && base64(m[2])
  const id = pub?.length === 32 && sha256('ringfence-pub/v1 ed25519 ', pub).subarray(0, 8).toString('hex')
  return id && id === m[1] ? { text, id, pub } : null
}

// openCheckpoint verifies the five lines of a signed checkpoint.
function openCheckpoint ([origin, size, root, none, signature], key) {
  const c = { size: integer(size), root: base64(root) }
  if (!/^[!-*,-~]{1,128}$/.test(origin) || c.size === null || c.root?.length !== 32 || none !== '') throw new Wrong('not a checkpoint')
  const head = `\u2014 ${origin} `
  const sig = signature.startsWith(head) ? base64(signature.slice(head.length)) : null
  const keyHash = sha256(origin + '\n', [1], key.pub).subarray(0, 4)
  const jwk = { kty: 'OKP', crv: 'Ed25519', x: key.pub.toString('base64url') }
  const text = Buffer.from(`${origin}\n${size}\n${root}\n`)
  if (sig?.length !== 68 || !sig.subarray(0, 4).equals(keyHash) ||
    !checkSignature(null, text, createPublicKey({ key: jwk, format: 'jwk' }), sig.subarray(4))) throw new Wrong('checkpoint not signed by the key')
  return c
}

class Export {
  at = 0; line = 0; last = -1; unknown = 0; seq = 0; prev = '0'.repeat(64); time = ''; boot = 0; ended = false
  constructor (bytes) { this.bytes = bytes }
  // next returns the bytes of the next line without its end.
  next (limit = 512) {
    this.line++
    const [start, end] = [this.at, this.bytes.indexOf(0x0a, this.at)]
    if (end < 0 || end + 1 - start > limit) throw new Wrong('the line is too long, or the file ends here')
    this.at = end + 1
    return this.bytes.subarray(start, end)
  }

  text () { return this.next().toString('utf8') }

  // expect reads a line that is a name, a space and a value that read accepts.
  expect (name, read) {
    const line = this.text()
    const value = line.startsWith(name + ' ') && read(line.slice(name.length + 1))
    if (!value) throw new Wrong(`want ${name} and a value`)
    return value
  }
  empty () { if (this.next().length !== 0) throw new Wrong('this line should be empty') }

  // run verifies everything after the first line.
  run () {
    this.session = this.expect('session', s => /^[A-Za-z0-9._-]{1,64}$/.test(s) && s)
    const entries = this.expect('entries', integer)
    this.key = this.expect('key', parsePublic)
    this.empty()
    this.tree = openCheckpoint([this.text(), this.text(), this.text(), this.text(), this.text()], this.key)
    if (entries > this.tree.size) throw new Wrong('more entries than the ledger has')
    this.empty()
    for (let i = 0; i < entries; i++) this.entry()
    this.line++
    if (this.at !== this.bytes.length) throw new Wrong('something follows the last entry')
  }

  entry () {
    const [, digits, proof, rest] = /^([^ ]*) ([^ ]*) (.*)$/s.exec(this.next(MAX_LINE).toString('latin1')) ?? []
    const index = integer(digits ?? '')
    if (index === null) throw new Wrong('want index, proof and leaf')
    if (index <= this.last) throw new Wrong('out of order', index)
    this.last = index
    const hashes = proof === '-' ? Buffer.alloc(0) : base64(proof)
    if (!hashes || (hashes.length === 0) !== (proof === '-') || hashes.length % 32 !== 0 || hashes.length > 64 * 32) throw new Wrong('malformed proof', index)
    const path = Array.from({ length: hashes.length / 32 }, (_, i) => hashes.subarray(32 * i, 32 * i + 32))
    const raw = Buffer.from(rest, 'latin1')
    const hash = sha256([0], raw)
    const root = index < this.tree.size ? rootFrom(path, 0, this.tree.size, index, hash) : null
    if (!root?.equals(this.tree.root)) throw new Wrong('not in the tree of the checkpoint', index)
    const leaf = decodeLeaf(raw, index)
    if (!leaf) this.unknown++
    if (this.unknown > 0) return
    if (leaf.session !== this.session && this.seq === 0) { // what was signed is right
      this.line = 2
      throw new Wrong('the entries are of another session than the header says')
    }
    if (leaf.session !== this.session) throw new Wrong('of another session', index)
    if (this.ended) throw new Wrong('it follows the end of the session', index)
    if (leaf.seq !== this.seq || leaf.prev !== this.prev) throw new Wrong('it does not follow the entry before', index)
    if (leaf.time < this.time || leaf.boot < this.boot) throw new Wrong('it is earlier than the entry before', index)
    Object.assign(this, { seq: leaf.seq + 1, prev: hash.toString('hex'), time: leaf.time, boot: leaf.boot, ended: leaf.type === 'session-end' })
  }
}

// verifyExport returns { status, reason, line, index } for the bytes of an
// export; trusted are texts of public keys.
export function verifyExport (bytes, trusted) {
  const x = new Export(bytes)
  const result = (status, reason = '', line = 0, index = -1) => ({ status, reason, line, index })
  let version, wrong
  try {
    version = integer(/^ringfence-export\/v(\d+)$/.exec(x.next().toString('latin1'))?.[1] ?? '')
    if (!version) throw new Wrong('not an export')
    x.run()
  } catch (e) {
    if (!(e instanceof Wrong)) throw e
    wrong = e
  }
  if (version > 1 && wrong) return result('incomplete', `unknown version ${version}`, 1)
  if (version > 1) return result('invalid', 'it says another version than it is', 1)
  if (wrong) return result('invalid', wrong.message, x.line, wrong.index)
  if (x.unknown > 0) return result('incomplete', `${x.unknown} entries of an unknown version`)
  if (!trusted.includes(x.key.text)) return result('incomplete', `signed by key ${x.key.id}, which is not trusted`)
  return x.ended ? result('valid') : result('incomplete', 'the session had not ended')
}

function main (args) {
  const trusted = args.filter((_, i) => args[i - 1] === '--key')
  const files = args.filter((a, i) => a !== '--key' && args[i - 1] !== '--key')
  if (files.length === 0 || !trusted.every(parsePublic)) return 2
  const results = files.map(file => ({ file, ...verifyExport(readFileSync(file), trusted) }))
  results.forEach(r => console.log(JSON.stringify(r)))
  return results.some(r => r.status === 'invalid') ? 1 : results.every(r => r.status === 'valid') ? 0 : 3
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) process.exitCode = main(process.argv.slice(2))
