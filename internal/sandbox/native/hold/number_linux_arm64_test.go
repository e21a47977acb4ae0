package hold

// sysOpen is no number: there is only openat.
const sysOpen = -1
