#!/usr/bin/env escript
%% An independent reader of the Erlang external term format, for differential tests (Debian package: erlang-base).
%% Reads one hex-encoded term a line on standard input and prints, a line each:
%%   ok <hex of the same term re-encoded deterministically>   or   error <reason>
%% A writer of ours is right when its bytes come back unchanged; a reader is right when it accepts exactly what is ok here.
-mode(compile).

main(_) ->
    ok = io:setopts([binary, {encoding, latin1}]),
    loop().

loop() ->
    case io:get_line("") of
        eof -> ok;
        Line ->
            io:put_chars([answer(string:trim(Line)), $\n]),
            loop()
    end.

answer(Hex) ->
    try
        Bin = binary:decode_hex(Hex),
        {Term, Used} = binary_to_term(Bin, [used]),
        case Used =:= byte_size(Bin) of
            true -> ["ok ", hex(term_to_binary(Term, [deterministic, {minor_version, 2}]))];
            false -> "error trailing_bytes"
        end
    catch _:_ -> "error badarg"
    end.

hex(Bin) -> string:lowercase(binary:encode_hex(Bin)).
