// Two servers, https and http, that print each request they read as a line of JSON, and
// their ports first.
const fs = require('fs'), http = require('http'), https = require('https')
const say = v => fs.writeSync(1, JSON.stringify(v) + '\n')
const on = label => (q, s) => {
  const parts = []
  q.on('data', d => parts.push(d))
  q.on('end', () => {
    say({ Server: label, Method: q.method, URL: q.url, Host: q.headers.host || '', Body: Buffer.concat(parts).toString('latin1') })
    s.end('ok')
  })
}
const secure = https.createServer({ key: fs.readFileSync(process.argv[2]), cert: fs.readFileSync(process.argv[3]) }, on('tls'))
const plain = http.createServer(on('plain'))
secure.listen(0, '127.0.0.1', () => plain.listen(0, '127.0.0.1', () => say({ Ports: [secure.address().port, plain.address().port] })))
process.stdin.resume().on('end', () => process.exit(0))
