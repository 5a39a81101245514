// SPDX-License-Identifier: Apache-2.0
// A small HTTP/1.1 server: one thread per connection, with limits of size and time. What a request
// means is the handler's business.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "llm/serve/socket.hpp"

namespace tenon::llm::serve {

struct HttpLimits {
  size_t connections = 256;                 // more are answered with 503
  size_t header_bytes = 16 << 10;           // more are answered with 431
  size_t body_bytes = 4 << 20;              // more are answered with 413
  std::chrono::milliseconds idle{60'000};   // between two requests of a connection
  std::chrono::milliseconds read{30'000};   // of a whole request, from its first byte; then 408
  std::chrono::milliseconds write{30'000};  // of one write: a client that reads nothing is dropped
};

struct HttpRequest {
  std::string method;                          // "GET"
  std::string path;                            // "/v1/models", without the query
  std::map<std::string, std::string> headers;  // by names in lower case
  std::string body;                            // empty while admit() is asked

  // Empty if there is no such header. name: in lower case.
  std::string_view header(const std::string& name) const {
    const auto i = headers.find(name);
    return i == headers.end() ? std::string_view{} : std::string_view(i->second);
  }
};

// Answers one request: either by one send(), or by begin(), write()s and end(). One thread.
class HttpReply {
 public:
  using Headers = std::map<std::string, std::string>;

  virtual ~HttpReply() = default;
  virtual void send(unsigned status, std::string_view type, std::string_view body,
                    const Headers& more = {}) = 0;
  // Starts an answer of unknown length, with status 200. Each write() leaves at once.
  virtual void begin(std::string_view type, const Headers& more = {}) = 0;
  // False once the client has gone: the rest can be left out.
  virtual bool write(std::string_view part) = 0;
  virtual void end() = 0;
  // True once the client has closed the connection.
  virtual bool gone() const = 0;
};

// Called by many threads at once. What admit() and answer() throw is answered with 500.
struct HttpHandlers {
  // Called once the header is complete, before the server reads the body. Returns true for the
  // server to go on. Otherwise it has sent a reply, and a connection whose body is unread closes.
  std::function<bool(const HttpRequest&, HttpReply&)> admit;
  std::function<void(const HttpRequest&, HttpReply&)> answer;
  // Returns the body of replies that the server makes itself (limits, malformed requests).
  std::function<std::string(unsigned status, const std::string& text)> refuse;
};

class HttpServer {
 public:
  // Listens from now on. port 0: the system chooses one.
  HttpServer(const std::string& host, uint16_t port, HttpLimits limits, HttpHandlers handlers);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  uint16_t port() const { return listener_.port(); }
  // Serves until stop() is true (asked ten times a second). Then no request begins any more, and
  // those that run may end for at most `drain`. Returns the number of those that did not.
  size_t run(const std::function<bool()>& stop, std::chrono::milliseconds drain);

 private:
  struct Shared;
  Listener listener_;
  std::shared_ptr<Shared> shared_;
};

}  // namespace tenon::llm::serve
