import { useMutation, useQuery } from '@tanstack/react-query';
import { useEffect } from 'react';
import { ApiError, request, setOnUnauthorized } from './http';
import { newQueryClient } from './live';
import type { Session } from './types';

// sessions stores which user is logged in. The data that this user sees is stored separately, and is dropped at the end
// of the session (App.tsx).
export const sessions = newQueryClient();

const queryKey = ['session'];

// useSession returns which user is logged in. It learns that a session has ended from a refusal, and when the page
// becomes visible or online again.
export function useSession() {
  useEffect(() => {
    setOnUnauthorized(() => void sessions.invalidateQueries({ queryKey }));
  }, []);
  return useQuery<Session, ApiError>(
    { queryKey, queryFn: ({ signal }) => request('GET', '/v1/session', undefined, signal), refetchOnWindowFocus: 'always', refetchOnReconnect: 'always' },
    sessions,
  );
}

export function useLogin() {
  return useMutation<Session, ApiError, string>(
    { mutationFn: (token) => request('POST', '/v1/login', { token }), onSuccess: (session) => sessions.setQueryData(queryKey, session) },
    sessions,
  );
}

export function useLogout() {
  return useMutation<undefined, ApiError>({ mutationFn: () => request('POST', '/v1/logout'), onSuccess: () => sessions.resetQueries({ queryKey }) }, sessions);
}
