// SPDX-License-Identifier: Apache-2.0
// Connections, and requests by Boost.Beast's parser and serializer.
#include "llm/serve/http.hpp"

#include <algorithm>
#include <atomic>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

namespace tenon::llm::serve {

namespace http = boost::beast::http;
namespace asio = boost::asio;
using boost::system::error_code;

// What the threads of connections use; it lives as long as the last of them.
struct HttpServer::Shared {
  HttpLimits limits;
  HttpHandlers handlers;
  std::atomic<bool> draining{false};
  std::mutex mutex;
  std::condition_variable ended;
  size_t open = 0;  // connections
  size_t busy = 0;  // of them, those that answer a request
};

namespace {

constexpr std::string_view kJson = "application/json";

class BeastReply final : public HttpReply {
 public:
  // only_header: send() leaves the body out.
  BeastReply(Connection& connection, unsigned version, bool keep_alive, bool only_header,
             std::chrono::milliseconds write_limit)
      : connection_(connection),
        version_(version),
        keep_alive_(keep_alive),
        only_header_(only_header),
        write_limit_(write_limit) {}

  void send(unsigned status, std::string_view type, std::string_view body,
            const Headers& more) override {
    begun_ = ended_ = true;
    http::response<http::span_body<const char>> r{static_cast<http::status>(status), version_};
    describe(r, type, more);
    r.body() = {body.data(), body.size()};
    r.content_length(body.size());
    within_limit();
    error_code error;
    if (only_header_) {
      http::response_serializer<http::span_body<const char>> serializer{r};
      http::write_header(connection_, serializer, error);
    } else {
      http::write(connection_, r, error);
    }
    note(error);
  }

  void begin(std::string_view type, const Headers& more) override {
    begun_ = true;
    http::response<http::empty_body> r{http::status::ok, version_};
    describe(r, type, more);
    r.set(http::field::cache_control, "no-store");
    // HTTP/1.0 has no chunks: there the end of the connection ends the answer.
    chunks_ = version_ >= 11;
    if (chunks_)
      r.chunked(true);
    else
      r.keep_alive(keep_alive_ = false);
    http::response_serializer<http::empty_body> serializer{r};
    within_limit();
    error_code error;
    http::write_header(connection_, serializer, error);
    note(error);
  }

  bool write(std::string_view part) override {
    if (part.empty() || gone_) return !gone_;
    within_limit();
    error_code error;
    const asio::const_buffer bytes(part.data(), part.size());
    if (chunks_)
      asio::write(connection_, http::make_chunk(bytes), error);
    else
      asio::write(connection_, bytes, error);
    note(error);
    return !gone_;
  }

  void end() override {
    ended_ = true;
    if (!chunks_ || gone_) return;
    within_limit();
    error_code error;
    asio::write(connection_, http::make_chunk_last(), error);
    note(error);
  }

  bool gone() const override { return gone_ || connection_.closed(); }

  bool begun() const { return begun_; }
  // The connection can take another request.
  bool reusable() const { return keep_alive_ && ended_ && !gone_; }

 private:
  template <class Response>
  void describe(Response& r, std::string_view type, const Headers& more) {
    r.set(http::field::server, "tenon");
    r.set(http::field::content_type, boost::beast::string_view(type.data(), type.size()));
    // A browser must not guess another type than the one that is said.
    r.set("X-Content-Type-Options", "nosniff");
    for (const auto& [name, value] : more) r.set(name, value);
    r.keep_alive(keep_alive_);
  }
  void within_limit() { connection_.set_deadline(Clock::now() + write_limit_); }
  void note(const error_code& error) { gone_ = gone_ || error; }

  Connection& connection_;
  unsigned version_;
  bool keep_alive_, only_header_;
  std::chrono::milliseconds write_limit_;
  bool begun_ = false, ended_ = false, chunks_ = false, gone_ = false;
};

// What a request that cannot be read is answered with; 0: nothing, the client has gone.
unsigned status_of(const error_code& error) {
  if (error == http::error::body_limit) return 413;
  if (error == http::error::header_limit) return 431;
  if (error == asio::error::timed_out) return 408;
  if (error == http::error::end_of_stream || error == http::error::partial_message ||
      error == asio::error::eof || error.category() == boost::system::system_category())
    return 0;
  return 400;
}

std::string text_of(unsigned status, const error_code& error, const HttpLimits& limits) {
  switch (status) {
    case 408:
      return "the request did not arrive within " + std::to_string(limits.read.count() / 1000) +
             " s";
    case 413:
      return "the body is larger than " + std::to_string(limits.body_bytes) + " bytes";
    case 431:
      return "the header is larger than " + std::to_string(limits.header_bytes) + " bytes";
    default:
      return "malformed request: " + error.message();
  }
}

// A request without its body. HEAD becomes GET.
HttpRequest head_of(const http::request<http::string_body>& r) {
  HttpRequest request;
  request.method = r.method() == http::verb::head ? "GET" : std::string(r.method_string());
  const std::string target(r.target());
  request.path = target.substr(0, target.find('?'));
  for (const auto& field : r) {
    std::string name(field.name_string());
    std::transform(name.begin(), name.end(), name.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
    request.headers[name] = std::string(field.value());
  }
  return request;
}

// Reads requests of one connection and answers them.
class Session {
 public:
  Session(const HttpHandlers& handlers, const HttpLimits& limits, Connection& connection)
      : handlers_(handlers), limits_(limits), connection_(connection) {}

  // Answers the next request, whose first byte has come. False if the connection is to be closed.
  bool next() {
    http::request_parser<http::string_body> parser;
    parser.header_limit(static_cast<uint32_t>(limits_.header_bytes));
    parser.body_limit(limits_.body_bytes);
    connection_.set_deadline(Clock::now() + limits_.read);
    error_code error;
    http::read_header(connection_, buffer_, parser, error);
    if (error) return refuse(error);
    const http::request<http::string_body>& message = parser.get();
    HttpRequest request = head_of(message);
    const bool keep_alive = message.keep_alive(), no_body = parser.is_done();
    const bool only_header = message.method() == http::verb::head;
    BeastReply refusal(connection_, message.version(), keep_alive && no_body, only_header,
                       limits_.write);
    bool admitted = false;
    guarded(refusal, [&] { admitted = handlers_.admit(request, refusal); });
    if (!admitted) {
      if (!no_body) connection_.linger();
      return refusal.reusable();
    }
    if (boost::beast::iequals(message[http::field::expect], "100-continue")) {
      http::response<http::empty_body> go_on{http::status::continue_, message.version()};
      http::write(connection_, go_on, error);
    }
    if (!error) http::read(connection_, buffer_, parser, error);
    if (error) return refuse(error);
    request.body = std::move(parser.get().body());
    BeastReply reply(connection_, message.version(), keep_alive, only_header, limits_.write);
    guarded(reply, [&] { handlers_.answer(request, reply); });
    return reply.reusable();
  }

  bool has_bytes() const { return buffer_.size() > 0; }
  void refuse(unsigned status, const std::string& text) {
    BeastReply(connection_, 11, false, false, limits_.write)
        .send(status, kJson, handlers_.refuse(status, text), {});
    connection_.linger();
  }

 private:
  bool refuse(const error_code& error) {
    if (const unsigned status = status_of(error)) refuse(status, text_of(status, error, limits_));
    return false;
  }

  template <class Call>
  void guarded(BeastReply& reply, Call call) {
    std::string what;
    try {
      call();
      return;
    } catch (const std::exception& e) {
      what = e.what();
    }
    // An answer that has begun cannot become an error any more: closing it without its end tells
    // the client that something is missing.
    if (!reply.begun()) reply.send(500, kJson, handlers_.refuse(500, what), {});
  }

  const HttpHandlers& handlers_;
  const HttpLimits& limits_;
  Connection& connection_;
  boost::beast::flat_buffer buffer_;
};

}  // namespace

HttpServer::HttpServer(const std::string& host, uint16_t port, HttpLimits limits,
                       HttpHandlers handlers)
    : listener_(host, port), shared_(std::make_shared<Shared>()) {
  shared_->limits = limits;
  shared_->handlers = std::move(handlers);
}

HttpServer::~HttpServer() = default;

size_t HttpServer::run(const std::function<bool()>& stop, std::chrono::milliseconds drain) {
  const auto serve = [](const std::shared_ptr<Shared>& s, int fd, bool too_many) {
    // Waits in short steps, so that a drain closes connections that nobody uses.
    constexpr std::chrono::milliseconds kStep{100};
    Connection connection(fd);
    Session session(s->handlers, s->limits, connection);
    if (too_many) {
      session.refuse(503, "too many connections: at most " + std::to_string(s->limits.connections));
    } else {
      auto last = Clock::now();
      while (!s->draining && Clock::now() - last < s->limits.idle) {
        if (!session.has_bytes() && !connection.wait_readable(kStep)) continue;
        {
          const std::lock_guard lock(s->mutex);
          if (s->draining) break;
          ++s->busy;
        }
        bool more = false;
        try {
          more = session.next();
        } catch (const std::exception&) {  // no memory for the request: the connection is closed
        }
        {
          const std::lock_guard lock(s->mutex);
          --s->busy;
        }
        if (!more) break;
        last = Clock::now();
      }
    }
    const std::lock_guard lock(s->mutex);
    --s->open;
    s->ended.notify_all();
  };
  while (!stop()) {
    const int fd = listener_.accept(std::chrono::milliseconds(100));
    if (fd < 0) continue;
    bool too_many = false;
    {
      const std::lock_guard lock(shared_->mutex);
      // A few more get a refusal; behind them, connections are closed without a word.
      if (shared_->open >= shared_->limits.connections + 16) {
        Connection{fd};
        continue;
      }
      too_many = shared_->open >= shared_->limits.connections;
      ++shared_->open;
    }
    try {
      std::thread(serve, shared_, fd, too_many).detach();
    } catch (const std::exception&) {  // no more threads
      Connection{fd};
      const std::lock_guard lock(shared_->mutex);
      --shared_->open;
    }
  }
  listener_.close();
  std::unique_lock lock(shared_->mutex);
  shared_->draining = true;
  shared_->ended.wait_for(lock, drain, [&] { return shared_->open == 0; });
  return shared_->busy;
}

}  // namespace tenon::llm::serve
