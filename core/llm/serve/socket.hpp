// SPDX-License-Identifier: Apache-2.0
// TCP sockets whose reads and writes end at a deadline, as streams that Boost.Beast can use.
#pragma once

#include <atomic>
#include <boost/asio/buffer.hpp>
#include <boost/system/error_code.hpp>
#include <boost/system/system_error.hpp>
#include <chrono>
#include <cstdint>
#include <string>

namespace tenon::llm::serve {

using Clock = std::chrono::steady_clock;

// A connection to one client. Moves; closes its socket when it is destroyed. One thread at a time.
class Connection {
 public:
  explicit Connection(int fd) : fd_(fd) {}
  Connection(Connection&& other) noexcept : fd_(other.fd_), deadline_(other.deadline_) {
    other.fd_ = -1;
  }
  Connection& operator=(Connection&&) = delete;
  ~Connection();

  // Reads and writes that are not done by then fail with timed_out.
  void set_deadline(Clock::time_point deadline) { deadline_ = deadline; }
  // Waits until a byte or the end of the connection can be read, at most for `wait`. False if
  // neither came.
  bool wait_readable(std::chrono::milliseconds wait) const;
  // True if the client has closed the connection or its half of it. Bytes that came too early (a
  // next request) stay unread.
  bool closed() const;

  // Ends an answer to a request that was not read to its end: tells the client that nothing more
  // comes, and reads what it still sends for a second. Closed at once, the system would throw the
  // answer away.
  void linger();

  // The requirements of Beast's SyncReadStream and SyncWriteStream.
  template <class Buffers>
  size_t read_some(const Buffers& buffers, boost::system::error_code& error) {
    for (auto i = boost::asio::buffer_sequence_begin(buffers);
         i != boost::asio::buffer_sequence_end(buffers); ++i) {
      const boost::asio::mutable_buffer b = *i;
      if (b.size() > 0) return read(b.data(), b.size(), error);
    }
    error = {};
    return 0;
  }
  template <class Buffers>
  size_t read_some(const Buffers& buffers) {
    return checked(buffers, &Connection::read_some<Buffers>);
  }
  template <class Buffers>
  size_t write_some(const Buffers& buffers, boost::system::error_code& error) {
    for (auto i = boost::asio::buffer_sequence_begin(buffers);
         i != boost::asio::buffer_sequence_end(buffers); ++i) {
      const boost::asio::const_buffer b = *i;
      if (b.size() > 0) return write(b.data(), b.size(), error);
    }
    error = {};
    return 0;
  }
  template <class Buffers>
  size_t write_some(const Buffers& buffers) {
    return checked(buffers, &Connection::write_some<Buffers>);
  }

 private:
  template <class Buffers>
  size_t checked(const Buffers& buffers,
                 size_t (Connection::*some)(const Buffers&, boost::system::error_code&)) {
    boost::system::error_code error;
    const size_t n = (this->*some)(buffers, error);
    if (error) throw boost::system::system_error(error);
    return n;
  }
  size_t read(void* data, size_t size, boost::system::error_code& error);
  size_t write(const void* data, size_t size, boost::system::error_code& error);
  bool wait(short events, boost::system::error_code& error) const;

  int fd_;
  Clock::time_point deadline_ = Clock::time_point::max();
};

// A listening socket.
class Listener {
 public:
  // host: a name or an address of this machine. port 0: the system chooses one. Throws
  // tenon::Error if the address is unknown or taken.
  Listener(const std::string& host, uint16_t port);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  uint16_t port() const { return port_; }
  // Waits for the next client, at most for `wait`. Returns its socket, or -1 if none came.
  int accept(std::chrono::milliseconds wait) const;
  // Refuses clients from now on.
  void close();

 private:
  int fd_ = -1;
  uint16_t port_ = 0;
};

}  // namespace tenon::llm::serve
