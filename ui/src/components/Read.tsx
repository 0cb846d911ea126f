import type { UseQueryResult } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import type { ApiError } from '../api/http';
import { dateTime } from '../lib/format';
import { Loading } from './Loading';
import { Problem } from './Problem';

interface Props<T> {
  query: UseQueryResult<T, ApiError>;
  what: string;
  // ages: no stream keeps the data up to date, so it is old if it could not be read again. For streams, the bar above
  // the page shows this.
  ages?: boolean;
  children: (data: T) => ReactNode;
}

// Read shows the data that was read. Until then, it shows that the data is being read, or why it cannot be read.
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
