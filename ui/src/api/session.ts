import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { useEffect } from 'react';
import { ApiError, request, setOnUnauthorized } from './http';
import type { Session } from './types';

// useSession says who is logged in, and learns when a login has ended.
export function useSession() {
  const client = useQueryClient();
  useEffect(() => {
    setOnUnauthorized(() => void client.invalidateQueries({ queryKey: ['session'] }));
  }, [client]);
  return useQuery<Session, ApiError>({ queryKey: ['session'], queryFn: ({ signal }) => request('GET', '/v1/session', undefined, signal) });
}

export function useLogin() {
  const client = useQueryClient();
  return useMutation<Session, ApiError, string>({
    mutationFn: (token) => request('POST', '/v1/login', { token }),
    onSuccess: (session) => {
      client.removeQueries({ predicate: (query) => query.queryKey[0] !== 'session' }); // what somebody else was shown before
      client.setQueryData(['session'], session);
    },
  });
}

// useLogout forgets all that was read with the login, too.
export function useLogout() {
  const client = useQueryClient();
  return useMutation<undefined, ApiError>({
    mutationFn: () => request('POST', '/v1/logout'),
    onSuccess: async () => {
      client.removeQueries({ predicate: (query) => query.queryKey[0] !== 'session' });
      await client.resetQueries({ queryKey: ['session'] });
    },
  });
}
