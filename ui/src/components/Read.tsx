import type { UseQueryResult } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import type { ApiError } from '../api/http';
import { dateTime } from '../lib/format';
import { Loading } from './Loading';
import { Problem } from './Problem';

interface Props<T> {
  query: UseQueryResult<T, ApiError>;
  what: string;
  // ages: no stream keeps it as it is, so it is old when it could not be read again. Of streams the bar above the page tells.
  ages?: boolean;
  children: (data: T) => ReactNode;
}

// Read shows what was read; until then that it is being read, or why it cannot be.
export function Read<T>({ query, what, ages, children }: Props<T>) {
  if (query.data !== undefined) {
    return (
      <>
        {ages && query.isError && (
          <p className="warning" role="status">
            Last read at {dateTime(new Date(query.dataUpdatedAt))}. Since then, {what} could not be read: {query.error.message}
          </p>
        )}
        {children(query.data)}
      </>
    );
  }
  return query.isError ? <Problem error={query.error} retry={() => void query.refetch()} /> : <Loading what={what} />;
}
