// SPDX-License-Identifier: Apache-2.0
// The HTTP server over real sockets: requests that are cut, malformed or too large, connections
// that stay, and how it stops.
#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <stdexcept>
#include <thread>

#include "llm/serve/http.hpp"
#include "tenon/tenon.hpp"

TEST_SUITE("llm/http") {
  using namespace tenon::llm::serve;
  using std::chrono::milliseconds;

  // A server in a thread. Paths: /no is not admitted, /odd throws instead, /stream writes three parts, /throw throws, /wait waits until the
  // client or the test lets it go, others answer "METHOD body".
  struct Rig {
    std::atomic<bool> stopped{false}, let_go{false}, client_gone{false};
    std::atomic<int> waiting{0};
    HttpServer server;
    size_t left = 0;
    std::thread thread;

    explicit Rig(HttpLimits limits = {}, milliseconds drain = milliseconds(10'000))
        : server("127.0.0.1", 0, limits,
                 {.admit = [](const HttpRequest& r, HttpReply& reply) { return admit(r, reply); },
                  .answer = [this](const HttpRequest& r, HttpReply& reply) { answer(r, reply); },
                  .refuse =
                      [](unsigned status, const std::string& text) {
                        return std::to_string(status) + " " + text;
                      }}),
          thread([this, drain] { left = server.run([this] { return stopped.load(); }, drain); }) {}
    ~Rig() { stop(); }
    void stop() {
      stopped = true;
      if (thread.joinable()) thread.join();
    }
    static bool admit(const HttpRequest& r, HttpReply& reply) {
      if (r.path == "/odd") throw std::runtime_error("odd path");
      if (r.path == "/no") reply.send(401, "text/plain", "no " + r.method + r.body);
      return r.path != "/no";
    }
    void answer(const HttpRequest& r, HttpReply& reply) {
      if (r.path == "/throw") throw std::runtime_error("no luck");
      if (r.path == "/stream") {
        reply.begin("text/plain");
        for (const char* part : {"one", "two", "three"}) reply.write(part);
        reply.end();
        return;
      }
      if (r.path == "/wait") {
        ++waiting;
        while (!let_go && !reply.gone()) std::this_thread::sleep_for(milliseconds(2));
        client_gone = reply.gone();
        --waiting;
      }
      reply.send(200, "text/plain", r.method + " " + r.body);
    }
  };

  struct Client {
    int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    explicit Client(const Rig& rig) {
      sockaddr_in a{};
      a.sin_family = AF_INET;
      a.sin_port = htons(rig.server.port());
      a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      REQUIRE(::connect(fd, reinterpret_cast<sockaddr*>(&a), sizeof a) == 0);
    }
    ~Client() { close(); }
    void close() {
      if (fd >= 0) ::close(fd);
      fd = -1;
    }
    void send(const std::string& text) const {
      size_t at = 0;
      while (at < text.size()) {
        const ssize_t n = ::send(fd, text.data() + at, text.size() - at, MSG_NOSIGNAL);
        if (n <= 0) return;
        at += static_cast<size_t>(n);
      }
    }
    // Reads until `end` has come or the connection ends.
    std::string read(const std::string& end = "\1never") const {
      std::string all;
      char part[4096];
      while (all.find(end) == std::string::npos) {
        const ssize_t n = ::recv(fd, part, sizeof part, 0);
        if (n <= 0) break;
        all.append(part, static_cast<size_t>(n));
      }
      return all;
    }
  };

  std::string status_line(const std::string& answer) { return answer.substr(0, answer.find('\r')); }
  void wait_until(const std::atomic<int>& count, int n) {
    while (count != n) std::this_thread::sleep_for(milliseconds(1));
  }

  TEST_CASE("a connection takes several requests, also at once") {
    Rig rig;
    const Client c(rig);
    c.send("POST /a?x=1 HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello");
    CHECK(c.read("POST hello").ends_with("POST hello"));
    c.send(
        "GET /b HTTP/1.1\r\nHost: h\r\n\r\nGET /c HTTP/1.1\r\nHost: h\r\nConnection: "
        "close\r\n\r\n");
    const std::string both = c.read();
    CHECK(both.find("GET ", both.find("GET ") + 4) != std::string::npos);
  }

  TEST_CASE("a request in single bytes, and one in chunks") {
    Rig rig;
    const Client c(rig);
    for (const char b : std::string("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nab"))
      c.send(std::string(1, b));
    CHECK(c.read("POST ab").ends_with("POST ab"));
    c.send("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\ncd\r\n0\r\n\r\n");
    CHECK(c.read("POST cd").ends_with("POST cd"));
  }

  TEST_CASE("a stream comes in chunks; for HTTP/1.0 the end of the connection ends it") {
    Rig rig;
    const Client c(rig);
    c.send("GET /stream HTTP/1.1\r\nHost: h\r\n\r\n");
    const std::string answer = c.read("0\r\n\r\n");
    CHECK(answer.find("3\r\none\r\n3\r\ntwo\r\n5\r\nthree\r\n0\r\n\r\n") != std::string::npos);
    const Client old(rig);
    old.send("GET /stream HTTP/1.0\r\n\r\n");
    CHECK(old.read().ends_with("\r\n\r\nonetwothree"));
  }

  TEST_CASE("what cannot be read is refused with a status") {
    HttpLimits limits;
    limits.body_bytes = 100;
    limits.header_bytes = 1000;
    limits.read = milliseconds(200);
    Rig rig(limits);
    const std::pair<std::string, const char*> bad[] = {
        {"nonsense\r\n\r\n", "HTTP/1.1 400 Bad Request"},
        {"GET / HTTP/9.9\r\n\r\n", "HTTP/1.1 400 Bad Request"},
        {"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", "HTTP/1.1 400 Bad Request"},
        {"POST / HTTP/1.1\r\nContent-Length: 101\r\n\r\n", "HTTP/1.1 413 Payload Too Large"},
        {"POST / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
         "HTTP/1.1 400 Bad Request"},
        {"GET / HTTP/1.1\r\nX: " + std::string(5000, 'x') + "\r\n\r\n",
         "HTTP/1.1 431 Request Header Fields Too Large"},
        {"POST / HTTP/1.1\r\nContent-Length: 10\r\n\r\nabc", "HTTP/1.1 408 Request Timeout"},
        {"GET / HT", "HTTP/1.1 408 Request Timeout"}};
    for (const auto& [request, status] : bad) {
      CAPTURE(request.substr(0, 80));
      const Client c(rig);
      c.send(request);
      const std::string answer = c.read();
      CHECK(status_line(answer) == status);
      CHECK(answer.find("Connection: close") != std::string::npos);
    }
    // The server is as before.
    const Client c(rig);
    c.send("GET / HTTP/1.0\r\n\r\n");
    CHECK(c.read().ends_with("GET "));
  }

  TEST_CASE("a handler that throws is answered with 500, and the connection goes on") {
    Rig rig;
    const Client c(rig);
    c.send("GET /throw HTTP/1.1\r\nHost: h\r\n\r\n");
    CHECK(c.read("500 no luck").find("HTTP/1.1 500 Internal Server Error") == 0);
    c.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    CHECK(c.read("GET ").ends_with("GET "));
  }

  TEST_CASE("a client that asks to go on is told so before it sends its body") {
    Rig rig;
    const Client c(rig);
    c.send("POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n");
    CHECK(c.read("\r\n\r\n").starts_with("HTTP/1.1 100 Continue"));
    c.send("z");
    CHECK(c.read("POST z").ends_with("POST z"));
  }

  TEST_CASE("a request that is not admitted is answered before its body, and without it") {
    Rig rig;
    for (const std::string expect : {"", "Expect: 100-continue\r\n"}) {
      const Client c(rig);
      c.send("POST /no HTTP/1.1\r\nHost: h\r\n" + expect + "Content-Length: 1000\r\n\r\n");
      const std::string answer = c.read();
      CHECK(status_line(answer) == "HTTP/1.1 401 Unauthorized");
      CHECK(answer.find("Connection: close") != std::string::npos);
      CHECK(answer.ends_with("\r\n\r\nno POST"));
    }
    // Without a body, the connection goes on.
    const Client c(rig);
    c.send("GET /no HTTP/1.1\r\nHost: h\r\n\r\n");
    CHECK(c.read("no GET").ends_with("no GET"));
    c.send("HEAD /no HTTP/1.1\r\nHost: h\r\n\r\n");
    CHECK(c.read("\r\n\r\n").find("Content-Length: 6\r\n") != std::string::npos);
    c.send("GET /odd HTTP/1.1\r\nHost: h\r\n\r\n");
    CHECK(status_line(c.read("500 odd path")) == "HTTP/1.1 500 Internal Server Error");
    c.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    CHECK(c.read("GET ").starts_with("HTTP/1.1 200 OK"));
  }

  TEST_CASE("handlers see that their client has gone") {
    Rig rig;
    Client c(rig);
    c.send("GET /wait HTTP/1.1\r\nHost: h\r\n\r\n");
    wait_until(rig.waiting, 1);
    c.close();
    wait_until(rig.waiting, 0);
    CHECK(rig.client_gone);
  }

  TEST_CASE("more connections than allowed are refused with 503") {
    HttpLimits limits;
    limits.connections = 2;
    Rig rig(limits);
    const Client a(rig), b(rig);
    for (const Client* c : {&a, &b}) c->send("GET /wait HTTP/1.1\r\nHost: h\r\n\r\n");
    wait_until(rig.waiting, 2);
    const Client c(rig);
    CHECK(status_line(c.read()) == "HTTP/1.1 503 Service Unavailable");
    rig.let_go = true;
    CHECK(a.read("GET ").ends_with("GET "));
  }

  TEST_CASE("stop: requests that run end, connections without one are closed") {
    Rig rig;
    const Client idle(rig), busy(rig);
    idle.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    CHECK(idle.read("GET ").ends_with("GET "));
    busy.send("GET /wait HTTP/1.1\r\nHost: h\r\n\r\n");
    wait_until(rig.waiting, 1);
    rig.stopped = true;
    CHECK(idle.read() == "");
    rig.let_go = true;
    CHECK(busy.read().ends_with("GET "));
    rig.stop();
    CHECK(rig.left == 0);
  }

  TEST_CASE("stop: requests that do not end are counted") {
    Rig rig({}, milliseconds(50));
    const Client c(rig);
    c.send("GET /wait HTTP/1.1\r\nHost: h\r\n\r\n");
    wait_until(rig.waiting, 1);
    rig.stop();
    CHECK(rig.left == 1);
    rig.let_go = true;
    wait_until(rig.waiting, 0);
  }

  TEST_CASE("an address that is taken or unknown is an error") {
    const Listener first("127.0.0.1", 0);
    CHECK_THROWS_WITH_AS(Listener("127.0.0.1", first.port()),
                         doctest::Contains("cannot listen on 127.0.0.1:"), tenon::Error);
    CHECK_THROWS_WITH_AS(Listener("no.such.host.invalid", 0), doctest::Contains("no address"),
                         tenon::Error);
  }
}
