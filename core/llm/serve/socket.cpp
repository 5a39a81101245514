// SPDX-License-Identifier: Apache-2.0
// Sockets by poll(): asio's blocking calls have no timeouts.
#include "llm/serve/socket.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/error.hpp>
#include <cerrno>
#include <cstring>
#include <memory>

#include "tenon/tenon.hpp"

namespace tenon::llm::serve {
namespace {

using boost::system::error_code;

error_code system_error_code() { return {errno, boost::system::system_category()}; }

int milliseconds(Clock::duration left) {
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
  return static_cast<int>(std::clamp<int64_t>(ms, 0, 60'000));
}

}  // namespace

Connection::~Connection() {
  if (fd_ >= 0) ::close(fd_);
}

bool Connection::wait(short events, error_code& error) const {
  for (;;) {
    const auto now = Clock::now();
    if (now >= deadline_) {
      error = boost::asio::error::timed_out;
      return false;
    }
    pollfd p{fd_, events, 0};
    const int n = ::poll(&p, 1, milliseconds(deadline_ - now));
    if (n > 0) return true;
    if (n < 0 && errno != EINTR) {
      error = system_error_code();
      return false;
    }
  }
}

bool Connection::wait_readable(std::chrono::milliseconds wait) const {
  pollfd p{fd_, POLLIN, 0};
  return ::poll(&p, 1, milliseconds(wait)) > 0;
}

bool Connection::closed() const {
  char byte = 0;
  const ssize_t n = ::recv(fd_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

size_t Connection::read(void* data, size_t size, error_code& error) {
  error = {};
  for (;;) {
    if (!wait(POLLIN, error)) return 0;
    const ssize_t n = ::recv(fd_, data, size, MSG_DONTWAIT);
    if (n > 0) return static_cast<size_t>(n);
    if (n == 0) {
      error = boost::asio::error::eof;
      return 0;
    }
    if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
      error = system_error_code();
      return 0;
    }
  }
}

size_t Connection::write(const void* data, size_t size, error_code& error) {
  error = {};
  for (;;) {
    if (!wait(POLLOUT, error)) return 0;
    const ssize_t n = ::send(fd_, data, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n >= 0) return static_cast<size_t>(n);
    if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
      error = system_error_code();
      return 0;
    }
  }
}

Listener::Listener(const std::string& host, uint16_t port) {
  const std::string address = host + ":" + std::to_string(port);
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  if (const int e = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found))
    throw Error(TENON_NOT_FOUND, "serve: no address for " + address + ": " + ::gai_strerror(e));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> all(found, &::freeaddrinfo);
  int why = 0;
  for (const addrinfo* a = found; a && fd_ < 0; a = a->ai_next) {
    const int fd =
        ::socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol);
    const int on = 1;
    // A server that was just stopped leaves connections that wait; they must not keep the port.
    if (fd >= 0) ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (fd >= 0 && ::bind(fd, a->ai_addr, a->ai_addrlen) == 0 && ::listen(fd, 512) == 0) {
      fd_ = fd;
      break;
    }
    why = errno;
    if (fd >= 0) ::close(fd);
  }
  if (fd_ < 0)
    throw Error(TENON_IO_ERROR, "serve: cannot listen on " + address + ": " + std::strerror(why));
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  ::getsockname(fd_, reinterpret_cast<sockaddr*>(&bound), &size);
  port_ = ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(bound).sin6_port
                                            : reinterpret_cast<sockaddr_in&>(bound).sin_port);
}

void Connection::linger() {
  ::shutdown(fd_, SHUT_WR);
  set_deadline(Clock::now() + std::chrono::seconds(1));
  char rest[4096];
  error_code error;
  while (read(rest, sizeof rest, error) > 0) {
  }
}

Listener::~Listener() { close(); }

void Listener::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

int Listener::accept(std::chrono::milliseconds wait) const {
  if (fd_ < 0) return -1;
  pollfd p{fd_, POLLIN, 0};
  if (::poll(&p, 1, milliseconds(wait)) <= 0) return -1;
  const int fd = ::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  // A token is a small write, and each should leave at once.
  const int on = 1;
  if (fd >= 0) ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  // No descriptors are left: another try at once would fail likewise.
  if (fd < 0 && (errno == EMFILE || errno == ENFILE)) ::poll(nullptr, 0, 20);
  return fd;
}

}  // namespace tenon::llm::serve
