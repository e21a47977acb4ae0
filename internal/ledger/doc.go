// Package ledger is the append-only record of what was asked, decided and done.
//
// Every entry is canonical JSON, linked to the one before in its session, and a
// leaf of one Merkle tree; the root of the tree is signed about once a second.
// What is stored can be verified from its bytes alone, on any machine, by other
// programs: docs/ledger-format.md is the contract. Entries are written to a journal
// first, and moved to the database many at a time; whoever reads sees both.
//
// It does not know what entries mean, and does not protect itself from whoever
// holds both its files and its key: for that, checkpoints must be kept
// elsewhere (see [Ledger.Consistent]).
//
// Invariants:
//
//	L1  An Append that returned nil survives the death of the process; a durable
//	    one survives the loss of power. A batch is there whole or not at all.
//	L2  Entries are numbered without gaps, in the ledger and in each session;
//	    each names the hash of the one before in its session.
//	L3  Times never decrease, whatever the clock does; a clock that was set back
//	    is itself on record.
//	L4  A checkpoint is signed only over entries that are on disk, and covers
//	    every entry within about a second.
//	L5  A ledger that does not match its newest checkpoint, in the database or
//	    in the file beside it, or misses what its journal says was on disk, is
//	    not opened.
//	L6  After a failed flush nothing is appended until the ledger is opened
//	    again: what the disk holds is no longer known. After any other failure
//	    the next append is tried, and numbering goes on without a gap.
//	L7  The zero [Status] is Invalid. Valid needs a key that the caller trusts.
//	L8  What is in the journal stays there until it is on disk in the database.
//	    After a write to the database that failed nothing is appended until one
//	    succeeds.
package ledger
