// Package crash kills engines and clients at random moments while they work, and
// checks that what happened is what the record says.
//
// It ends processes by SIGKILL, which loses nothing that was written. The loss of
// power is not tested here: what an fsync is worth is the disk's to say.
package crash
